"""Convert a checkpoint for another device with its structure kept (``keep_structure``).

Everything that ``torch.load(weights_only=True)`` allows is written as it was: dicts, lists, tuples,
sets, numbers, strings, bytes, sizes, dtypes, tensors of every layout. Devices become the target.
Values that torch would refuse become plain data of the same meaning, and are counted:
    modules                          their state dicts
    numpy arrays and scalars         tensors, numbers
    Namespace, SimpleNamespace       dicts of their attributes
    defaultdict, AttributeDict, …    dicts
    frozenset, deque, Path           a set, a list, text
The rest is left out and listed; in a list or tuple, None replaces it.

numpy arrays become CPU tensors. States of random generators that were on the CPU stay there,
because torch accepts them only there.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

from converter.devices.names import TorchDevice
from converter.write.torch.storages import Storages, torch_name
from converter.write.torch.tensors import SPARSE, RefusedError, Tensors, size_call
from formats.containers.pickle.encoder import MAX_INTEGER, Call, Key, Name, integer_bytes
from formats.containers.pickle.values import NOTHING, Global, Map, Odd, Record, SetOf
from formats.core.bundle import LeftOut
from formats.core.storage import Span
from formats.errors import LimitError
from formats.limits import MIB, Limits
from formats.torch.numpy_globals import NumpyArray, NumpyScalar
from formats.torch.pickled_values import (
    as_tensor,
    is_module,
    key_text,
    leaf_text,
    state_dict,
)
from formats.torch.structure import Size
from formats.torch.tensor_values import TYPES, StorageRef, TensorValue
from formats.torch.training_groups import RANDOM_KEY
from formats.torch.walk import MAX_NOTES

MAX_BYTES = 64 * MIB  # of one byte string, which a pickle holds as a string
MAX_VALUES = 5_000_000  # converted values of any kind
MAX_DEPTH = 100  # of containers; a level takes five Python frames
ORDERED = Name("collections", "OrderedDict")
NAMESPACES = frozenset({"argparse.Namespace", "types.SimpleNamespace"})
CONSTANTS = frozenset({
    "per_tensor_affine", "per_tensor_symmetric", "per_channel_affine", "per_channel_symmetric",
    "per_channel_affine_float_qparams",
})  # fmt: skip
NO_STATE = "an attribute of a module: no state dict has it"
_NOTHING = object()  # a value that is left out


@dataclass(slots=True)
class KeptStructure:
    """A checkpoint's structure, for another device.

    Attributes:
        value: The value to pickle.
        devices: Recorded device → number of tensors.
        stayed: Paths of the tensors that stay on the CPU.
        simplified: Change to plain data → how often it was converted.
        left_out: What is left out, and why.
    """

    value: object = None
    devices: Counter[str] = field(default_factory=Counter)
    stayed: list[str] = field(default_factory=list)
    simplified: Counter[str] = field(default_factory=Counter)
    left_out: list[LeftOut] = field(default_factory=list)


def keep_structure(root: object, storages: Storages, limits: Limits) -> KeptStructure:
    """Return a checkpoint converted for another device.

    Raises:
        LimitError: It has too many parts.
        CorruptError: A tensor exceeds its storage.
    """
    walk = _Converter(storages, limits)
    value = walk.convert(root, ())
    walk.kept.value = None if value is _NOTHING else value
    return walk.kept


class _Converter:
    """Converts the values of one checkpoint."""

    def __init__(self, storages: Storages, limits: Limits) -> None:
        self.kept = KeptStructure()
        self._tensors = Tensors(storages)
        self._device: TorchDevice = storages.device
        self._depth = min(limits.max_depth, MAX_DEPTH)
        self._known: dict[int, object] = {}  # id of a value → the converted value
        self._open: set[int] = set()  # of tuples and sets, which cannot hold themselves
        self._alive: list[object] = []
        self._count = 0

    def convert(self, value: object, path: tuple[str, ...]) -> object:
        """Return the converted value; `_NOTHING` if it is left out."""
        self._count_value()
        kind = type(value)
        if value is None or kind is bool or kind is float or kind is str:
            return value
        if kind is int:
            return self._integer(value, path)
        known = self._known.get(id(value), _NOTHING)
        if known is not _NOTHING:
            return known
        if len(path) > self._depth:
            return self._leave_out(path, f"nests deeper than {self._depth} levels")
        try:
            converted = self._convert(value, path)
        except RefusedError as e:
            converted = self._leave_out(path, str(e))
        if converted is not _NOTHING:
            self._known[id(value)] = converted
            self._alive.append(value)
        return converted

    def _count_value(self) -> None:
        self._count += 1
        if self._count > MAX_VALUES:
            raise LimitError(f"checkpoint of more than {MAX_VALUES} values")

    def _convert(self, value: object, path: tuple[str, ...]) -> object:
        if isinstance(value, (bytes, Span)):
            return self._bytes(value)
        if isinstance(value, Size):
            return size_call(value)
        if isinstance(value, list):
            return self._list(value, path)
        if isinstance(value, tuple):
            return tuple(self._items(value, value, path))
        if isinstance(value, dict):
            return self._dict(value, path)
        if isinstance(value, SetOf):
            return self._set(value, path)
        if isinstance(value, complex):
            return value
        if isinstance(value, StorageRef):
            return self._storage(value)
        if isinstance(value, NumpyArray):
            return self._array(value, path)
        tensor = as_tensor(value)
        if tensor is not None:
            return self._tensor(tensor, path)
        if isinstance(value, NumpyScalar):
            return self._scalar(value, path)
        if isinstance(value, Global):
            return self._constant(value)
        if isinstance(value, Record):
            return self._record(value, path)
        raise RefusedError(
            f"a {leaf_text(value) or type(value).__name__}, which torch.load refuses"
        )

    # -- plain data ------------------------------------------------------------------------------

    def _integer(self, value: object, path: tuple[str, ...]) -> object:
        assert isinstance(value, int)
        if integer_bytes(value) > MAX_INTEGER:
            return self._leave_out(path, "an integer of more than 255 bytes")
        return value

    def _bytes(self, value: bytes | Span) -> bytes:
        size = value.length if isinstance(value, Span) else len(value)
        if size > MAX_BYTES:
            raise RefusedError(f"{size} bytes of opaque data")
        return value.read() if isinstance(value, Span) else value

    def _list(self, value: list[object], path: tuple[str, ...]) -> list[object]:
        converted: list[object] = []
        self._known[id(value)] = converted  # it may hold itself
        for i, item in enumerate(value):
            converted.append(self._convert_or_none(item, (*path, str(i))))
        return converted

    def _items(self, owner: object, items: "tuple[object, ...] | list[object]",
               path: tuple[str, ...]) -> list[object]:  # fmt: skip
        if id(owner) in self._open:
            raise RefusedError("holds itself")
        self._open.add(id(owner))
        try:
            return [self._convert_or_none(item, (*path, str(i))) for i, item in enumerate(items)]
        finally:
            self._open.discard(id(owner))

    def _set(self, value: SetOf, path: tuple[str, ...]) -> Call:
        """Return a set of the members that are kept."""
        if id(value) in self._open:
            raise RefusedError("holds itself")
        self._open.add(id(value))
        try:
            found = [self.convert(x, (*path, str(i))) for i, x in enumerate(value.items)]
        finally:
            self._open.discard(id(value))
        kept = [x for x in found if x is not _NOTHING and _is_hashable(x)]
        if len(kept) < len(found):
            self._leave_out(path, f"{len(found) - len(kept)} of its members")
        return Call(Name("__builtin__", "set"), (kept,))

    def _convert_or_none(self, value: object, path: tuple[str, ...]) -> object:
        converted = self.convert(value, path)
        return None if converted is _NOTHING else converted

    def _dict(self, value: dict[object, object], path: tuple[str, ...]) -> object:
        cls = value.cls if isinstance(value, Map) else ""
        pairs: dict[object, object] = {}
        if cls == "collections.OrderedDict":
            converted: object = Call(ORDERED, (), pairs)
        elif cls == "collections.Counter":
            converted = Call(Name("collections", "Counter"), (pairs,))
        else:
            converted = pairs
        if cls == "collections.defaultdict":
            self.kept.simplified["defaultdict made a dict"] += 1
        self._known[id(value)] = converted
        self._fill(pairs, value, path)
        state = value.state if isinstance(value, Map) else None
        if (
            isinstance(converted, Call)
            and converted.function is ORDERED
            and isinstance(state, dict)
        ):
            converted.state = self._dict(state, path)
        elif state:
            self._leave_out((*path, "(attributes)"), f"attributes of a {cls}")
        return converted

    def _fill(
        self, pairs: dict[object, object], value: dict[object, object], path: tuple[str, ...]
    ) -> None:
        for key, item in value.items():
            inside = (*path, key_text(key))
            found = self._key(key, inside)
            converted = _NOTHING if found is _NOTHING else self.convert(item, inside)
            if converted is not _NOTHING:
                pairs[found] = converted

    def _key(self, key: object, path: tuple[str, ...]) -> object:
        if not isinstance(key, (Odd, bytes)):
            return key
        converted = self.convert(key.value if isinstance(key, Odd) else key, path)
        if converted is _NOTHING or isinstance(converted, (bytes, int, float)):
            return converted
        return (
            Key(converted)
            if _is_hashable(converted)
            else self._leave_out(path, "a key that has no hash")
        )

    # -- numpy -----------------------------------------------------------------------------------

    def _array(self, value: NumpyArray, path: tuple[str, ...]) -> object:
        if value.tensor is None or value.tensor.cls is not None:
            raise RefusedError(f"a numpy array of {value.dtype or 'unknown'}{list(value.shape)}")
        self.kept.simplified["numpy array made a tensor"] += 1
        return self._tensors.call(value.tensor, ".".join(path), stays=True)  # as numpy arrays

    def _scalar(self, value: NumpyScalar, path: tuple[str, ...]) -> object:
        if not isinstance(value.value, (bool, int, float, complex)):
            raise RefusedError(f"a numpy scalar of {value.dtype}")
        self.kept.simplified["numpy scalar made a number"] += 1
        return self.convert(value.value, path)

    # -- torch -----------------------------------------------------------------------------------

    def _constant(self, value: Global) -> object:
        module, _, name = value.name.rpartition(".")
        if module == "torch" and (name in TYPES or name in CONSTANTS):
            return torch_name(TYPES[name].name if name in TYPES else name)
        if module == "torch" and (name in SPARSE or name == "strided"):
            return self._tensors.storages.layout(name)
        raise RefusedError(f"{value.name}, which torch.load(weights_only=True) refuses")

    def _storage(self, ref: StorageRef) -> object:
        if ref.location == "meta":
            raise RefusedError("a storage of the meta device")
        self._count_location(ref.location)
        storages = self._tensors.storages
        slot = storages.slot(ref.span, ref.type, ref.byteorder, id(ref), stays=False)
        return storages.reference(slot)

    def _tensor(self, value: TensorValue, path: tuple[str, ...]) -> object:
        location = _location(value)
        byte = value.type is not None and value.type.name == "uint8"
        stays = byte and location == "cpu" and any(RANDOM_KEY.search(key) for key in path)
        converted = self._tensors.call(value, ".".join(path), stays=stays)
        if stays:
            self.kept.devices["cpu"] += 1
            self.kept.stayed.append(".".join(path))
        else:
            self._count_location(location)
        if value.cls is not None:
            self.kept.simplified[f"{value.cls} made a tensor"] += 1
        if value.state:
            state = self._state(value.state[0], path)
            if state:
                converted = self._tensors.with_state(converted, value, state)
        return converted

    def _state(self, state: object, path: tuple[str, ...]) -> object:
        """Return the attributes of a tensor: a dict, or a pair of dicts (the second of slots)."""
        if isinstance(state, tuple) and len(state) == 2:
            converted = tuple(self._state(part, path) or {} for part in state)
            return converted if any(converted) else None
        if not isinstance(state, dict):
            return None
        pairs: dict[object, object] = {}
        self._fill(pairs, state, path)
        return pairs or None

    def _count_location(self, location: str | None) -> None:
        """Count the device that a tensor was on."""
        if location is not None:
            self.kept.devices[location] += 1

    def _record(self, value: Record, path: tuple[str, ...]) -> object:
        cls = value.cls
        if cls == "torch.device":
            return self._device_object(value)
        if is_module(value):
            self.kept.simplified["module made a state dict"] += 1
            pairs: dict[object, object] = {}
            self._module(value, "", path, pairs, 0)
            return Call(ORDERED, (), pairs)
        if cls in NAMESPACES and not value.args and value.items == ():
            attributes = {**state_dict(value), **dict(value.pairs)}
            self.kept.simplified[f"{cls} made a dict"] += 1
            return self._dict(attributes, path)
        alone = not (value.args or value.items or value.state)
        if alone and value.pairs and cls.endswith(("Dict", "dict")):
            self.kept.simplified[f"{cls} made a dict"] += 1
            return self._dict(dict(value.pairs), path)
        inside = value.args[0] if len(value.args) == 1 and value.pairs is NOTHING else None
        if cls == "builtins.bytearray" and isinstance(inside, bytes):
            return Call(Name("__builtin__", "bytearray"), (inside,))
        if cls == "builtins.frozenset" and isinstance(inside, SetOf):
            self.kept.simplified["frozenset made a set"] += 1
            return self._convert(inside, path)
        if cls == "collections.deque" and isinstance(inside, list):
            self.kept.simplified["deque made a list"] += 1
            return self._list([*inside, *value.items], path)
        if cls == "pathlib.Path" and isinstance(inside, str):
            self.kept.simplified["path made text"] += 1
            return inside
        raise RefusedError(f"a {cls}, which torch.load(weights_only=True) refuses")

    def _device_object(self, value: Record) -> object:
        was = leaf_text(value) or ""
        if was.startswith("meta"):
            return Call(Name("torch", "device"), ("meta",))
        if was != str(self._device):
            self.kept.simplified["device object set to the target"] += 1
        number = () if self._device.index is None else (self._device.index,)
        return Call(Name("torch", "device"), (self._device.kind, *number))

    def _module(
        self,
        module: Record,
        prefix: str,
        path: tuple[str, ...],
        pairs: dict[object, object],
        depth: int,
    ) -> None:
        """Collect the tensors that ``module.state_dict()`` would."""
        self._count_value()
        if depth > self._depth or id(module) in self._open:
            raise RefusedError("a module that holds itself")
        self._open.add(id(module))
        try:
            for name in _other_tensors(module):
                self._leave_out((*path, *f"{prefix}{name}".split(".")), NO_STATE)
            for name, tensor in _state_tensors(module):
                converted = self.convert(_detach(tensor), (*path, *f"{prefix}{name}".split(".")))
                if converted is not _NOTHING:
                    pairs[f"{prefix}{name}"] = converted
            modules = state_dict(module).get("_modules")
            for key, inner in modules.items() if isinstance(modules, dict) else ():
                if isinstance(inner, Record) and is_module(inner):
                    self._module(inner, f"{prefix}{key_text(key)}.", path, pairs, depth + 1)
        finally:
            self._open.discard(id(module))

    def _leave_out(self, path: tuple[str, ...], reason: str) -> object:
        if len(self.kept.left_out) < MAX_NOTES:
            self.kept.left_out.append(LeftOut(".".join(path)[:4096] or "(root)", reason))
        elif len(self.kept.left_out) == MAX_NOTES:
            self.kept.left_out.append(LeftOut("…", "more that is not listed"))
        return _NOTHING


def _state_tensors(module: Record) -> Iterator[tuple[str, object]]:
    """Yield the parameters and persistent buffers of one module."""
    state = state_dict(module)
    parameters, buffers = state.get("_parameters"), state.get("_buffers")
    passing = state.get("_non_persistent_buffers_set")
    skipped = {x for x in passing.items if isinstance(x, str)} if isinstance(passing, SetOf) else ()
    for found in (parameters, buffers):
        for key, value in found.items() if isinstance(found, dict) else ():
            if value is not None and (found is parameters or key not in skipped):
                yield key_text(key), value


def _other_tensors(module: Record) -> Iterator[str]:
    """Yield the names of a module's tensors that its state dict does not have."""
    own = {name for name, _ in _state_tensors(module)}
    for key, value in state_dict(module).items():
        if key in ("_parameters", "_buffers") and isinstance(value, dict):
            for name, held in value.items():
                if held is not None and key_text(name) not in own:
                    yield key_text(name)
        elif key != "_modules" and _holds_tensor(value, 0):
            yield key_text(key)


def _holds_tensor(value: object, depth: int) -> bool:
    """Return whether plain containers hold a tensor; objects are not searched."""
    if depth > 3:
        return False
    if isinstance(value, (list, tuple, dict)):
        inside = value.values() if isinstance(value, dict) else value
        return any(_holds_tensor(part, depth + 1) for part in islice(inside, 1000))
    return as_tensor(value) is not None


def _is_hashable(converted: object) -> bool:
    """Return whether a converted value can be the key of a dict."""
    if isinstance(converted, tuple):
        return all(_is_hashable(part) for part in converted)
    if isinstance(converted, Call):
        return converted.function.name not in ("OrderedDict", "Counter", "set", "bytearray")
    return not isinstance(converted, (list, dict))


def _detach(value: object) -> object:
    """Return the plain tensor that a state dict has of a parameter."""
    tensor = as_tensor(value)
    if tensor is None:
        return value
    tensor = tensor.copy()
    tensor.is_parameter, tensor.requires_grad, tensor.state = False, False, []
    return tensor


def _location(value: TensorValue) -> str | None:
    """Return the device of a tensor, or of the parts it is converted of."""
    found = value.device or (value.storage.location if value.storage else None)
    for part in value.parts.values():
        if found is None and isinstance(part, TensorValue):
            found = _location(part)
    return found
