"""What torch itself says is in a file, as JSON: run inside an environment that has torch.

    python tools/corpus/oracle_torch.py FILE [KIND]

KIND is ``torch``, ``torchscript`` or ``pt2``. Prints one object: ``{"ok": true, "tensors": {name:
[dtype, shape, sha256 of the contiguous little-endian bytes]}}``, or ``{"ok": false, "error": …}``.
Names are paths joined by dots, as the reader gives them. Files are untrusted:
``weights_only=True``, and a child process of the caller's.
"""

import hashlib
import importlib
import json
import re
import sys
import warnings
from collections import OrderedDict

warnings.filterwarnings("ignore")
import torch  # noqa: E402


def digest(tensor):
    """Return dtype, shape and sha256 of a dense tensor."""
    tensor = tensor.detach().resolve_conj().resolve_neg().contiguous().cpu()
    name = str(tensor.dtype).removeprefix("torch.")
    flat = tensor.reshape(-1)
    raw = flat.view(torch.uint8) if flat.numel() else flat
    data = raw.numpy().tobytes() if flat.numel() else b""
    return [name, list(tensor.shape), hashlib.sha256(data).hexdigest()]


def add(out, name, tensor):
    """Add one tensor, under the names that the reader gives its parts."""
    if tensor.is_quantized:
        out[name] = digest(tensor.int_repr())
        if tensor.qscheme() in (torch.per_tensor_affine, torch.per_tensor_symmetric):
            out[f"{name}.scale"] = digest(torch.tensor(tensor.q_scale(), dtype=torch.float64))
            out[f"{name}.zero_point"] = digest(torch.tensor(tensor.q_zero_point()))
        else:
            out[f"{name}.scale"] = digest(tensor.q_per_channel_scales())
            out[f"{name}.zero_point"] = digest(tensor.q_per_channel_zero_points())
    elif tensor.layout == torch.sparse_coo:
        out[f"{name}.indices"] = digest(tensor._indices())
        out[f"{name}.values"] = digest(tensor._values())
    elif tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        out[f"{name}.crow_indices"] = digest(tensor.crow_indices())
        out[f"{name}.col_indices"] = digest(tensor.col_indices())
        out[f"{name}.values"] = digest(tensor.values())
    elif tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        out[f"{name}.ccol_indices"] = digest(tensor.ccol_indices())
        out[f"{name}.row_indices"] = digest(tensor.row_indices())
        out[f"{name}.values"] = digest(tensor.values())
    elif tensor.device.type != "meta":
        out[name] = digest(tensor)


class Stub:
    """Stands for a class that is not here; it only keeps what a pickle puts into it."""

    def __new__(cls, *args, **kwargs):
        """Take any arguments."""
        return object.__new__(cls)

    def __init__(self, *args, **kwargs):
        """Ignore them."""

    def __setstate__(self, state):
        """Keep attributes."""
        if isinstance(state, dict):
            self.__dict__.update(state)

    def __setitem__(self, key, value):
        """Keep entries, for what was a dict class."""
        self.__dict__[key] = value

    def append(self, item):
        """Keep elements, for what was a list class."""
        self.__dict__[str(len(self.__dict__))] = item


def walk(out, name, value):
    """Add every tensor inside a value."""
    if isinstance(value, torch.Tensor):
        add(out, name or "tensor", value)
    elif isinstance(value, (torch.nn.Module, Stub)) and "_parameters" in value.__dict__:
        for slot in ("_parameters", "_buffers", "_modules"):
            walk(out, name, dict(value.__dict__[slot]))
        walk(out, name, {k: v for k, v in value.__dict__.items() if not k.startswith("_")})
    elif isinstance(value, torch.nn.Module):
        walk(out, name, value.state_dict())
    elif isinstance(value, Stub):
        walk(out, name, value.__dict__)
    elif type(value).__name__ == "ndarray" and value.dtype != object:
        add(out, name or "tensor", torch.from_numpy(value.astype(value.dtype.newbyteorder("="))))
    elif isinstance(value, dict):
        for key, child in value.items():
            walk(out, f"{name}.{key}" if name else str(key), child)
    elif isinstance(value, (list, tuple)):
        for i, child in enumerate(value):
            walk(out, f"{name}.{i}" if name else str(i), child)


def tensors(path, kind):
    """Return every tensor of a file, by the official loader."""
    out = {}
    if kind == "torchscript":
        walk(out, "", torch.jit.load(path, map_location="cpu").state_dict())
    elif kind == "pt2":
        program = torch.export.load(path)
        walk(out, "", dict(program.state_dict))
        walk(out, "", dict(program.constants))
    else:
        walk(out, "", load_weights_only(path))
    return out


def load_weights_only(path):
    """Load; classes that torch refuses become stubs, numpy's own functions are let through."""
    known = {}
    for _ in range(300):
        torch.serialization.clear_safe_globals()
        torch.serialization.add_safe_globals([(value, name) for name, value in known.items()])
        try:
            return torch.load(path, map_location="cpu", weights_only=True)
        except Exception as e:
            refused = re.search(r"GLOBAL ([\w.]+) was not an allowed global", str(e))
            dict_class = re.search(r"Can only SETITEMS? for .*got <class '([\w.]+)'>", str(e))
            numpy_class = re.search(r"but got <class '(numpy\.[\w.]+)'>", str(e))
            if dict_class is not None:
                known[dict_class.group(1)] = OrderedDict
            elif numpy_class is not None:
                known[numpy_class.group(1)] = resolve(numpy_class.group(1))
            elif refused is not None:
                dotted = refused.group(1)
                module, _, last = dotted.rpartition(".")
                real = module.startswith(("numpy", "torch.nn.modules"))
                stub = type(last, (Stub,), {"__module__": module})
                known[dotted] = resolve(dotted) if real else stub
            else:
                raise
    raise RuntimeError("too many unknown classes")


def resolve(dotted):
    """Return numpy's or torch's own class or function."""
    module, _, last = dotted.rpartition(".")
    return getattr(importlib.import_module(module), last)


def main():
    """Print what the file holds."""
    path = sys.argv[1]
    kind = sys.argv[2] if len(sys.argv) > 2 else "torch"
    try:
        found = tensors(path, kind)
    except Exception as e:  # noqa: BLE001 - whatever the loader raises is the answer
        print(json.dumps({"ok": False, "error": f"{type(e).__name__}: {str(e)[:300]}"}))
    else:
        print(json.dumps({"ok": True, "torch": torch.__version__, "tensors": found}))


if __name__ == "__main__":
    main()
