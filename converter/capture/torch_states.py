"""Load a state dict with torch into the module that the user's factory creates.

Imports nothing of the project, as the other files of the child. A checkpoint is searched for dicts
of tensors. The one with the module's names is taken, after prefixes of wrappers are removed. It
must have all tensors of the module and no others.
"""

import collections
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

# The same prefixes as in converter/normalise/prefixes.py.
ANYWHERE = ("_orig_mod.", "_fsdp_wrapped_module.", "_checkpoint_wrapped_module.")
MAX_DEPTH = 4  # of nested dicts that are searched
SHOWN = 5  # names in a message
MAX_HEADER_BYTES = 100 << 20  # of a .safetensors file, the limit of its own library
SAFETENSORS = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64",
    "I32": "int32", "I16": "int16", "I8": "int8", "U8": "uint8", "BOOL": "bool",
    "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2", "U16": "uint16", "U32": "uint32",
    "U64": "uint64", "C64": "complex64",
}  # fmt: skip


class MismatchError(Exception):
    """A state dict and the module that a factory makes have other keys or shapes."""


def state_of(torch: Any, source: str) -> Any:
    """Return what a checkpoint holds; nothing that it names is run, and storages are on the CPU."""
    path = Path(source)
    if path.is_dir():
        files = sorted(path.glob("*.safetensors"))
        found: dict[str, Any] = {}
        for file in files or sorted(path.glob("*.bin")):
            found.update(state_of(torch, str(file)))
        return found
    with path.open("rb") as f:
        head = f.read(9)
    if len(head) == 9 and head[8:] == b"{":
        return _safetensors(torch, path)
    return torch.load(source, map_location="cpu", weights_only=True)


def _safetensors(torch: Any, path: Path) -> dict[str, Any]:
    found = {}
    with path.open("rb") as f:
        length = int.from_bytes(f.read(8), "little")
        if length > min(MAX_HEADER_BYTES, path.stat().st_size):
            raise ValueError(f"{path.name} has a header of {length} bytes")
        header = json.loads(f.read(length))
        for name, entry in header.items():
            if name == "__metadata__":
                continue
            start, end = entry["data_offsets"]
            dtype = getattr(torch, SAFETENSORS[entry["dtype"]])
            if start == end:
                found[name] = torch.empty(entry["shape"], dtype=dtype)
                continue
            f.seek(8 + length + start)
            data = bytearray(f.read(end - start))  # its own, and so aligned
            found[name] = torch.frombuffer(data, dtype=dtype).reshape(entry["shape"])
    return found


def fill(torch: Any, module: Any, value: Any) -> tuple[dict[str, str], list[str]]:
    """Load the state dict that a checkpoint holds into a module: all of its keys, and no others.

    Returns:
        The module's names → the file's; and what was taken off names.

    Raises:
        MismatchError: None fits; of the one that fits best, what is missing and what is too much.
    """
    wanted = list(module.state_dict())
    best: tuple[int, list[str], list[str], str] | None = None
    for path, state in _candidates(torch, value):
        for prefix, names in _spellings(state):
            given = collections.OrderedDict((name, state[old]) for name, old in names.items())
            if getattr(state, "_metadata", None) is not None and not prefix:
                given._metadata = state._metadata  # type: ignore[attr-defined]
            missing = [n for n in wanted if n not in given and not _is_counter(n)]
            extra = [n for n in given if n not in wanted]
            if missing or extra:
                key = len(missing) + len(extra)
                if best is None or key < best[0]:
                    best = key, missing, extra, path
                continue
            wrong = _shapes(module, given)
            if wrong:
                raise MismatchError(wrong)
            said = module.load_state_dict(given, strict=False)
            left = [n for n in said.missing_keys if not _is_counter(n)]
            if left or said.unexpected_keys:
                raise MismatchError(_difference(left, said.unexpected_keys, path))
            notes = [f"state dict {path!r}"] if path else []
            notes += [f"{prefix!r} taken off its names"] if prefix else []
            spelled = f"{path}." if path else ""
            return {name: f"{spelled}{old}" for name, old in names.items()}, notes
    if best is None:
        raise MismatchError("the file holds no dict of tensors")
    raise MismatchError(_difference(*best[1:]))


def _difference(missing: list[str], extra: list[str], path: str) -> str:
    where = f" in {path!r}" if path else ""
    parts = []
    if missing:
        parts.append(f"the file lacks tensors{where} ({len(missing)}): {_some(missing)}")
    if extra:
        parts.append(f"the module has no {len(extra)} of the file's: {_some(extra)}")
    return "; ".join(parts)


def _some(names: list[str]) -> str:
    return ", ".join(names[:SHOWN]) + (", …" if len(names) > SHOWN else "")


def _shapes(module: Any, given: Mapping[str, Any]) -> str:
    """Return which tensors have other shapes than the module's."""
    found = []
    for name, tensor in module.state_dict().items():
        if name in given and hasattr(tensor, "shape") and tensor.shape != given[name].shape:
            found.append(f"{name} is {list(given[name].shape)}, not {list(tensor.shape)}")
    if not found:
        return ""
    return f"tensors of other shapes ({len(found)}): {'; '.join(found[:SHOWN])}"


def _is_counter(name: str) -> bool:
    return name.rpartition(".")[2] == "num_batches_tracked"  # torch 0.4 and before had none


def _candidates(
    torch: Any, value: Any, path: str = "", depth: int = 0
) -> Iterator[tuple[str, Any]]:
    """Yield the dicts of tensors in a checkpoint, the outermost first."""
    if not isinstance(value, dict) or depth > MAX_DEPTH:
        return
    if any(isinstance(v, torch.Tensor) for v in value.values()):
        yield path, _tensors_only(torch, value)
    for key, item in value.items():
        yield from _candidates(torch, item, f"{path}.{key}" if path else str(key), depth + 1)


def _tensors_only(torch: Any, value: Any) -> Any:
    kept = collections.OrderedDict(
        (str(k), v) for k, v in value.items() if isinstance(v, torch.Tensor)
    )
    if getattr(value, "_metadata", None) is not None:
        kept._metadata = value._metadata  # type: ignore[attr-defined]
    return kept


def _spellings(state: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield what may be taken off a state dict's names, and the names: as they are first."""
    names = {name: name for name in state}
    yield "", names
    taken = ""
    for wrapper in ANYWHERE:
        if any(wrapper in name for name in names):
            names = {name.replace(wrapper, ""): old for name, old in names.items()}
            taken += wrapper
            yield taken, names
    while names:
        first = next(iter(names)).partition(".")[0] + "."
        if not all(name.startswith(first) and name != first for name in names):
            return
        names = {name[len(first) :]: old for name, old in names.items()}
        taken += first
        yield taken, names
