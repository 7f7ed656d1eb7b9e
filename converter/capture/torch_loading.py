"""Load a torch source with torch, in a child process.

This runs only in a child process, and imports nothing of the project but the files in this folder,
so that any Python (3.10 and later) with torch can run it. Both the child that exports a graph and
the child that runs the source to verify one load it with this module. A question has

    form        ``torchscript``, ``exported_program``, ``torch_modules``, ``state_dict`` or
                ``hf_config``: a folder of Hugging Face's, which `pretrained` loads; or
                ``timm_config``, ``diffusers_config``, ``sentence_transformers``: a folder that the
                library of that name loads
    source      path of the artifact; for ``state_dict`` also a .safetensors file, or a folder
    arch        for ``state_dict``: ``{"factory": "module:name", "arguments": {…} or […]}``
    task        for ``hf_config``: what the model is for, or null
    part        the only program of a model of several that is wanted, or null: for ``hf_config``
                one of `generation.PARTS`, for ``diffusers_config`` ``encoder`` or ``decoder``
    trusted     the user's modules, name and path, whose classes a pickle may use
    root        folder of the project, which imports these

A pickled module may use classes of torch.nn, of the libraries in `LIBRARIES`, and of trusted
modules. A class of ``__main__`` is looked up in trusted modules by its name. All other names in a
pickle are refused. Loaded modules are in evaluation mode.
"""

import contextlib
import enum
import importlib
import importlib.util
import inspect
import io
import os
import pickle
import re
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

LIBRARIES = ("torchvision", "timm", "transformers", "torchaudio")
# Classes of these are allowed if they are modules, configurations or enumerations.
NN = ("torch.nn.", "torch.ao.nn.", "torch.ao.quantization.stubs", "torch.ao.quantization.observer")
CONFIGURATIONS = ("PretrainedConfig", "PreTrainedConfig", "GenerationConfig")
# Functions and classes in pickles of tensors and plain values, besides classes of storages.
# fmt: off
REBUILDING: Mapping[str, frozenset[str]] = {
    "torch._utils": frozenset((
        "_rebuild_tensor", "_rebuild_tensor_v2", "_rebuild_tensor_v3", "_rebuild_parameter",
        "_rebuild_parameter_with_state", "_rebuild_qtensor", "_rebuild_sparse_tensor",
        "_rebuild_sparse_csr_tensor", "_rebuild_device_tensor_from_numpy",
        "_rebuild_meta_tensor_no_storage",
    )),
    "torch._tensor": frozenset(("_rebuild_from_type_v2",)),
    "torch": frozenset((
        "Size", "device", "dtype", "Tensor", "Generator", "float32", "float64", "float16",
        "bfloat16", "complex64", "complex128", "int8", "int16", "int32", "int64", "uint8", "bool",
        "qint8", "quint8", "qint32", "per_tensor_affine", "per_channel_affine", "strided",
        "contiguous_format", "channels_last", "preserve_format",
        "relu", "tanh", "sigmoid", "softmax", "log_softmax", "selu", "erf",
    )),
    "torch.nn.parameter": frozenset(("Parameter", "Buffer", "UninitializedParameter")),
    "torch.serialization": frozenset(("_get_layout",)),
    "torch.storage": frozenset(("TypedStorage", "_TypedStorage", "UntypedStorage")),
    "torch.nn.functional": frozenset((
        "relu", "relu6", "gelu", "silu", "elu", "selu", "celu", "leaky_relu", "mish", "softplus",
        "hardswish", "hardsigmoid", "hardtanh", "tanh", "sigmoid", "softmax", "log_softmax",
        "glu", "logsigmoid", "tanhshrink", "softsign", "softshrink", "max_pool1d", "max_pool2d",
        "avg_pool1d", "avg_pool2d", "adaptive_avg_pool1d", "adaptive_avg_pool2d", "normalize",
        "interpolate", "dropout",
    )),
    "torch._C._nn": frozenset(("gelu", "silu", "relu6", "softplus", "hardswish", "mish")),
    "collections": frozenset(("OrderedDict", "defaultdict", "Counter", "deque")),
    "builtins": frozenset((
        "set", "frozenset", "slice", "range", "complex", "bytearray", "dict", "list", "tuple",
        "int", "float", "bool", "str", "bytes", "object",
    )),
    "copyreg": frozenset(("_reconstructor",)),
    "functools": frozenset(("partial",)),
    "_codecs": frozenset(("encode",)),
    "numpy": frozenset(("ndarray", "dtype")),
    "numpy.core.multiarray": frozenset(("_reconstruct", "scalar")),
    "numpy._core.multiarray": frozenset(("_reconstruct", "scalar")),
}
# fmt: on
PARALLEL = {
    ("torch.nn.parallel.data_parallel", "DataParallel"),
    ("torch.nn.parallel.distributed", "DistributedDataParallel"),
}


# No class of an allowed library may download code or weights while a pickle is opened.
OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
MAX_DEPTH = 4  # of nested dicts that are searched for a module


def beside(name: str) -> Any:
    """Return a module in this file's folder, which is not on the import path."""
    spec: Any = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


guard, states = beside("torch_guard"), beside("torch_states")
pretrained, generation = beside("pretrained"), beside("generation")
model_inputs = beside("model_inputs")
RefusedError, MismatchError = guard.RefusedError, states.MismatchError
UnservedError = model_inputs.UnservedError


@dataclass
class Loaded:
    """A loaded source.

    Attributes:
        module: The callable: a ScriptModule, an nn.Module, or an exported program's module.
        program: The ExportedProgram, if it is one.
        notes: What was done differently from plain torch.
        renamed: For a state dict: the module's name of a tensor → its name in the file.
        inputs: Name, dtype and shape of each input, where the source's library knows them; of free
            axes also ``sizes``: of the example, and the model's own; of integers that are not
            below 2 in an example ``high``, which they are below.
        name: Of one of the programs that a source becomes; empty where it is the only one.
        others: The programs after the first.
    """

    module: Any
    program: Any = None
    notes: list[str] = field(default_factory=list)
    renamed: dict[str, str] = field(default_factory=dict)
    inputs: list[dict[str, Any]] = field(default_factory=list)
    name: str = ""
    others: "list[Loaded]" = field(default_factory=list)


def load(torch: Any, question: Mapping[str, Any], device: str = "cpu") -> Loaded:
    """Load a source on a device.

    Args:
        torch: The module.
        question: As above.
        device: Its name in torch.

    Raises:
        RefusedError: It would run untrusted code.
        MismatchError: The state dict does not fit the factory's module.
        UnservedError: No graph with plain inputs computes the model of a folder.
        Exception: Whatever torch raises.
    """
    loader: Callable[[Any, Mapping[str, Any], str], Loaded] = {
        "torchscript": _script,
        "exported_program": _export,
        "torch_modules": _load_pickle,
        "state_dict": _with_factory,
        "hf_config": _pretrained,
    }.get(question["form"], _of_library)
    loaded = loader(torch, question, device)
    for each in (loaded, *loaded.others):
        if each.program is None:
            each.module.eval()
    return loaded


# -- programs ------------------------------------------------------------------------------------


def _script(torch: Any, question: Mapping[str, Any], device: str) -> Loaded:
    source = question["source"]
    if guard.is_zip(source):
        guard.refuse_script(source)
    module = torch.jit.load(source, map_location=device)
    guard.refuse_nodes(module)
    if not hasattr(module, "forward"):
        methods = ", ".join(module._c._method_names())
        raise ValueError(f"the program has no forward, only {methods}")
    return Loaded(module)


def _export(torch: Any, question: Mapping[str, Any], device: str) -> Loaded:
    source = question["source"]
    guard.refuse_exported(torch, source)
    program = torch.export.load(source)
    if {str(t.device) for t in _tensors(program)} - {str(torch.device(device))}:
        passes: Any = importlib.import_module("torch.export.passes")
        program = passes.move_to_device_pass(program, device)
    return Loaded(program.module(), program)


def _tensors(program: Any) -> Iterator[Any]:
    yield from program.state_dict.values()
    yield from (v for v in program.constants.values() if hasattr(v, "device"))


# -- pickled modules -----------------------------------------------------------------------------


def _load_pickle(torch: Any, question: Mapping[str, Any], device: str) -> Loaded:
    os.environ.update(OFFLINE)
    finder = Finder(torch, _import_trusted(question))
    value = torch.load(
        question["source"],
        map_location=device,
        pickle_module=finder.as_module(),
        weights_only=False,
    )
    found = dict(_modules(torch, value))
    if len(found) != 1:
        names = ", ".join(found) or "none"
        raise ValueError(f"has {len(found)} modules to run, not one: {names}")
    (module,) = found.values()
    notes = [f"the module is the pickle's {name!r}" for name in found if name]
    module = _unwrap(module, notes)
    for parameter in module.parameters():
        parameter.requires_grad_(False)  # noqa: FBT003 - torch's own
    return Loaded(module, notes=notes)


def _modules(torch: Any, value: Any, name: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Yield the outermost modules of a checkpoint, by their keys."""
    if isinstance(value, torch.nn.Module):
        yield name, value
    elif isinstance(value, dict) and depth < MAX_DEPTH:
        for key, item in value.items():
            yield from _modules(torch, item, f"{name}.{key}" if name else str(key), depth + 1)


def _unwrap(module: Any, notes: list[str]) -> Any:
    while getattr(module, "is_wrapper", False) is True:
        notes.append("run without the DataParallel around it")
        module = module.module
    return module


def _wrapper(torch: Any) -> type:
    """Return a replacement of DataParallel, whose devices are not available."""

    class Wrapper(torch.nn.Module):  # type: ignore[misc]
        is_wrapper = True

        def __setstate__(self, state: dict[str, Any]) -> None:
            kept = {"_modules", "_parameters", "_buffers", "training"}
            torch.nn.Module.__init__(self)
            self.__dict__.update({k: v for k, v in state.items() if k in kept})

        def forward(self, *given: Any, **named: Any) -> Any:
            return self.module(*given, **named)

    return Wrapper


class Finder:
    """Looks up the names in a pickle that are allowed."""

    def __init__(self, torch: Any, trusted: Mapping[str, Any]) -> None:
        self.torch = torch
        self.trusted = trusted
        self.wrapper = _wrapper(torch)

    def as_module(self) -> Any:
        """Return a replacement of the module ``pickle`` for torch.load."""
        found = self.find

        class Unpickler(pickle.Unpickler):  # noqa: TID251 - with an allow-list
            def find_class(self, module: str, name: str) -> Any:
                return found(module, name)

        def load(file: Any, **options: Any) -> Any:
            return Unpickler(file, **options).load()

        def loads(data: bytes, **options: Any) -> Any:
            return load(io.BytesIO(data), **options)

        return types.SimpleNamespace(
            Unpickler=Unpickler, load=load, loads=loads, UnpicklingError=pickle.UnpicklingError,
            __name__="pickle",
        )  # fmt: skip

    def find(self, module: str, name: str) -> Any:
        """Return an allowed class or function by its name.

        Raises:
            RefusedError: It is not allowed.
        """
        if not name.isidentifier():  # a path of attributes
            raise RefusedError(f"names {module}.{name}")
        module = {"__builtin__": "builtins", "copy_reg": "copyreg"}.get(module, module)
        own = self.own(module, name)
        if own is not None:
            return own
        if (module, name) in PARALLEL:
            return self.wrapper
        if name in REBUILDING.get(module, ()):
            return getattr(importlib.import_module(module), name)
        if module in ("torch", "torch.cuda") and name.endswith("Storage"):
            return getattr(importlib.import_module(module), name)
        if module.startswith("numpy.dtypes") or (module == "numpy" and _is_scalar(name)):
            return getattr(importlib.import_module(module), name)
        if module.startswith(NN) or module.partition(".")[0] in LIBRARIES:
            value = getattr(importlib.import_module(module), name)
            if self.is_known(value):
                return value
        what = f"trust=[{module.partition('.')[0]!r}]"
        what = "trust=['MODULE=FILE.py'], where its class is" if module == "__main__" else what
        raise RefusedError(f"needs {module}.{name}, which is nobody's that is known: {what}")

    def own(self, module: str, name: str) -> Any:
        """Return an attribute of a trusted module by its name; None if there is none."""
        for trusted, loaded in self.trusted.items():
            if module == trusted or module.startswith(f"{trusted}."):
                inside = loaded if module == trusted else importlib.import_module(module)
                return getattr(inside, name)
        if module == "__main__":
            for loaded in self.trusted.values():
                if isinstance(getattr(loaded, name, None), type):
                    return getattr(loaded, name)
        return None

    def is_known(self, value: Any) -> bool:
        """Return whether a value is a class of modules, configurations or enumerations."""
        if not isinstance(value, type):
            return False
        if issubclass(value, (self.torch.nn.Module, enum.Enum)):
            return not issubclass(value, self.torch.jit.ScriptModule)
        return any(base.__name__ in CONFIGURATIONS for base in value.__mro__)


def _is_scalar(name: str) -> bool:
    return bool(re.fullmatch(r"(float|int|uint|complex)\d+|bool_?|generic|number", name))


def _import_trusted(question: Mapping[str, Any]) -> dict[str, Any]:
    """Return the user's trusted modules, imported, by name."""
    found: dict[str, Any] = {}
    for module, path in question.get("trusted") or ():
        if question["root"] not in sys.path:
            sys.path.append(question["root"])
        found[module] = importlib.import_module("converter.child.trust").load(module, path)
    return found


# -- state dicts ---------------------------------------------------------------------------------


def _with_factory(torch: Any, question: Mapping[str, Any], device: str) -> Loaded:
    module, state = built(torch, question), states.state_of(torch, question["source"])
    renamed, notes = states.fill(torch, module, state)
    return Loaded(module.to(device), notes=notes, renamed=renamed)


def built(torch: Any, question: Mapping[str, Any]) -> Any:
    """Return the module that a factory creates.

    Raises:
        ValueError: It creates something else.
    """
    trusted = _import_trusted(question)
    said = question["arch"]
    name, _, path = said["factory"].partition(":")
    found: Any = trusted[name] if name in trusted else importlib.import_module(name)
    for part in path.split("."):
        found = getattr(found, part)
    arguments = said.get("arguments") or {}
    made = found(*arguments) if isinstance(arguments, list) else found(**arguments)
    if not isinstance(made, torch.nn.Module):
        raise ValueError(f"{said['factory']} makes a {type(made).__name__}, no torch.nn.Module")  # noqa: TRY004 - what it is, is the user's
    return made


# -- folders of Hugging Face's ---------------------------------------------------------------------


def _pretrained(torch: Any, question: Mapping[str, Any], device: str) -> Loaded:
    os.environ.update(OFFLINE)
    folder, trusted = Path(question["source"]), _import_trusted(question)
    task = question["task"]
    head = (task or "").removesuffix(generation.WITH_PAST)
    with _refusals():
        model, notes = pretrained.load(folder, device, trusted, head)
    inputs, said = model_inputs.declare_inputs(model, model.config, folder, head)
    parts = generation.split_model(torch, model, inputs, task, question.get("part"))
    first, *others = (Loaded(part.module, inputs=part.inputs, name=part.name) for part in parts)
    first.others, first.notes = others, [*notes, *said]
    return first


def _of_library(torch: Any, question: Mapping[str, Any], device: str) -> Loaded:
    """Load a folder of timm, diffusers or sentence-transformers with the library itself."""
    os.environ.update(OFFLINE)
    folder, part = Path(question["source"]), question.get("part")
    notes: list[str] = []
    # CPU kernels of attention approximate exponentials, with errors of many units of rounding.
    torch.backends.cuda.enable_flash_sdp(False)  # noqa: FBT003 - torch's own
    with _refusals():
        if question["form"] == "timm_config":
            programs = beside("timm_models").load(folder, device)
        elif question["form"] == "diffusers_config":
            programs = beside("diffusion_models").load(
                torch, folder, device, pretrained, model_inputs
            )
        else:
            programs, notes = beside("sentence_models").load(
                folder, device, _import_trusted(question), pretrained, model_inputs
            )
    first, *others = (
        Loaded(generation.as_module(torch, model, inputs, call), inputs=inputs, name=name)
        for name, model, inputs, call in programs
        if part in (None, name)
    )
    first.others, first.notes = others, notes
    return first


@contextlib.contextmanager
def _refusals() -> Iterator[None]:
    """Raise what loaders of folders raise as this module's errors."""
    try:
        yield
    except pretrained.UntrustedError as e:
        raise RefusedError(f"its class is code in the folder: {e}") from e
    except pretrained.IncompleteError as e:
        raise MismatchError(str(e)) from e


# -- calling -------------------------------------------------------------------------------------


def parameters(module: Any) -> list[str]:
    """Return the names of the parameters of ``forward``."""
    schema = getattr(getattr(module, "forward", None), "schema", None)
    if schema is not None:
        return [argument.name for argument in schema.arguments if argument.name != "self"]
    return [
        name
        for name, p in inspect.signature(module.forward).parameters.items()
        if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]
