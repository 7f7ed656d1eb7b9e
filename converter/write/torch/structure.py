"""``--keep-structure``: a checkpoint's own nesting, for another device.

Everything that ``torch.load(weights_only=True)`` allows is written as it was: dicts, lists, tuples,
sets, numbers, text, bytes, sizes, dtypes, tensors of every layout. Devices are the target's. What
torch would refuse is made plain data where that says the same, and counted:
    modules                          their state dicts
    numpy arrays and scalars         tensors, numbers
    Namespace, SimpleNamespace       dicts of their attributes
    defaultdict, AttributeDict, …    dicts
    frozenset, deque, Path           a set, a list, text
The rest is left out, by name; in a list or tuple, None stands in its place.

What was numpy's is the CPU's, and so are states of random generators that were: torch takes them
from there only.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

from converter.devices.names import TorchDevice
from converter.write.torch.storages import Storages, torch_name
from converter.write.torch.tensors import SPARSE, Refused, Tensors, size_call
from formats.containers.pickle.encoder import MAX_INTEGER, Call, Key, Name, integer_bytes
from formats.containers.pickle.values import NOTHING, Global, Map, Odd, Record, SetOf
from formats.core.bundle import LeftOut
from formats.core.storage import Span
from formats.errors import LimitError
from formats.limits import MIB, Limits
from formats.torch.globals import TYPES, StorageRef, TensorValue
from formats.torch.numpy_globals import NumpyArray, NumpyScalar
from formats.torch.pickled_values import (
    as_tensor,
    is_module,
    key_text,
    leaf_text,
    state_dict,
)
from formats.torch.structure import Size
from formats.torch.walk import MAX_NOTES, RANDOM_KEY

MAX_BYTES = 64 * MIB  # of one byte string; a pickle holds it as text, and so would we
MAX_VALUES = 5_000_000  # converted, whatever they are
MAX_DEPTH = 100  # of containers; a level takes five of Python's own frames
ORDERED = Name("collections", "OrderedDict")
NAMESPACES = frozenset({"argparse.Namespace", "types.SimpleNamespace"})
CONSTANTS = frozenset({
    "per_tensor_affine", "per_tensor_symmetric", "per_channel_affine", "per_channel_symmetric",
    "per_channel_affine_float_qparams",
})  # fmt: skip
NO_STATE = "an attribute of a module: no state dict has it"
_NOTHING = object()  # in place of what is left out


@dataclass(slots=True)
class Kept:
    """A checkpoint's structure, for another device.

    Attributes:
        value: What is pickled.
        devices: Recorded device → number of tensors.
        stayed: Paths of the tensors that the CPU keeps.
        made: What was made plain data → how often.
        left_out: What is not there, and why.
    """

    value: object = None
    devices: Counter[str] = field(default_factory=Counter)
    stayed: list[str] = field(default_factory=list)
    made: Counter[str] = field(default_factory=Counter)
    left_out: list[LeftOut] = field(default_factory=list)


def keep(root: object, storages: Storages, limits: Limits) -> Kept:
    """Return a checkpoint as it will be written.

    Raises:
        LimitError: It has too many parts.
        CorruptError: A tensor reaches out of its storage.
    """
    walk = _Walk(storages, limits)
    value = walk.value(root, ())
    walk.kept.value = None if value is _NOTHING else value
    return walk.kept


class _Walk:
    """One way through a checkpoint."""

    def __init__(self, storages: Storages, limits: Limits) -> None:
        self.kept = Kept()
        self._tensors = Tensors(storages)
        self._device: TorchDevice = storages.device
        self._depth = min(limits.max_depth, MAX_DEPTH)
        self._known: dict[int, object] = {}  # id of a value → what it became
        self._open: set[int] = set()  # of tuples and sets, which cannot hold themselves
        self._alive: list[object] = []
        self._count = 0

    def value(self, value: object, path: tuple[str, ...]) -> object:
        """Return what becomes of a value; `_NOTHING` where it is left out, and named."""
        self._charge()
        kind = type(value)
        if value is None or kind is bool or kind is float or kind is str:
            return value
        if kind is int:
            return self._integer(value, path)
        known = self._known.get(id(value), _NOTHING)
        if known is not _NOTHING:
            return known
        if len(path) > self._depth:
            return self._refuse(path, f"nests deeper than {self._depth} levels")
        try:
            made = self._made(value, path)
        except Refused as e:
            made = self._refuse(path, str(e))
        if made is not _NOTHING:
            self._known[id(value)] = made
            self._alive.append(value)
        return made

    def _charge(self) -> None:
        self._count += 1
        if self._count > MAX_VALUES:
            raise LimitError(f"checkpoint of more than {MAX_VALUES} values")

    def _made(self, value: object, path: tuple[str, ...]) -> object:
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
        raise Refused(f"a {leaf_text(value) or type(value).__name__}, which torch.load refuses")

    # -- plain data ------------------------------------------------------------------------------

    def _integer(self, value: object, path: tuple[str, ...]) -> object:
        assert isinstance(value, int)
        if integer_bytes(value) > MAX_INTEGER:
            return self._refuse(path, "a whole number of more than 255 bytes")
        return value

    def _bytes(self, value: bytes | Span) -> bytes:
        size = value.length if isinstance(value, Span) else len(value)
        if size > MAX_BYTES:
            raise Refused(f"{size} bytes of opaque data")
        return value.read() if isinstance(value, Span) else value

    def _list(self, value: list[object], path: tuple[str, ...]) -> list[object]:
        made: list[object] = []
        self._known[id(value)] = made  # it may hold itself
        for i, item in enumerate(value):
            made.append(self._or_none(item, (*path, str(i))))
        return made

    def _items(self, owner: object, items: "tuple[object, ...] | list[object]",
               path: tuple[str, ...]) -> list[object]:  # fmt: skip
        if id(owner) in self._open:
            raise Refused("holds itself")
        self._open.add(id(owner))
        try:
            return [self._or_none(item, (*path, str(i))) for i, item in enumerate(items)]
        finally:
            self._open.discard(id(owner))

    def _set(self, value: SetOf, path: tuple[str, ...]) -> Call:
        """Return a set of what is kept: there, nothing stands for what is not."""
        if id(value) in self._open:
            raise Refused("holds itself")
        self._open.add(id(value))
        try:
            found = [self.value(x, (*path, str(i))) for i, x in enumerate(value.items)]
        finally:
            self._open.discard(id(value))
        kept = [x for x in found if x is not _NOTHING and _has_hash(x)]
        if len(kept) < len(found):
            self._refuse(path, f"{len(found) - len(kept)} of its members")
        return Call(Name("__builtin__", "set"), (kept,))

    def _or_none(self, value: object, path: tuple[str, ...]) -> object:
        made = self.value(value, path)
        return None if made is _NOTHING else made

    def _dict(self, value: dict[object, object], path: tuple[str, ...]) -> object:
        cls = value.cls if isinstance(value, Map) else ""
        pairs: dict[object, object] = {}
        if cls == "collections.OrderedDict":
            made: object = Call(ORDERED, (), pairs)
        elif cls == "collections.Counter":
            made = Call(Name("collections", "Counter"), (pairs,))
        else:
            made = pairs
        if cls == "collections.defaultdict":
            self.kept.made["defaultdict made a dict"] += 1
        self._known[id(value)] = made
        self._fill(pairs, value, path)
        state = value.state if isinstance(value, Map) else None
        if isinstance(made, Call) and made.function is ORDERED and isinstance(state, dict):
            made.state = self._dict(state, path)
        elif state:
            self._refuse((*path, "(attributes)"), f"attributes of a {cls}")
        return made

    def _fill(
        self, pairs: dict[object, object], value: dict[object, object], path: tuple[str, ...]
    ) -> None:
        for key, item in value.items():
            inside = (*path, key_text(key))
            found = self._key(key, inside)
            made = _NOTHING if found is _NOTHING else self.value(item, inside)
            if made is not _NOTHING:
                pairs[found] = made

    def _key(self, key: object, path: tuple[str, ...]) -> object:
        if not isinstance(key, (Odd, bytes)):
            return key
        made = self.value(key.value if isinstance(key, Odd) else key, path)
        if made is _NOTHING or isinstance(made, (bytes, int, float)):
            return made
        return Key(made) if _has_hash(made) else self._refuse(path, "a key that has no hash")

    # -- numpy -----------------------------------------------------------------------------------

    def _array(self, value: NumpyArray, path: tuple[str, ...]) -> object:
        if value.tensor is None or value.tensor.cls is not None:
            raise Refused(f"a numpy array of {value.dtype or 'unknown'}{list(value.shape)}")
        self.kept.made["numpy array made a tensor"] += 1
        return self._tensors.call(value.tensor, ".".join(path), stays=True)  # as numpy's are

    def _scalar(self, value: NumpyScalar, path: tuple[str, ...]) -> object:
        if not isinstance(value.value, (bool, int, float, complex)):
            raise Refused(f"a numpy scalar of {value.dtype}")
        self.kept.made["numpy scalar made a number"] += 1
        return self.value(value.value, path)

    # -- torch -----------------------------------------------------------------------------------

    def _constant(self, value: Global) -> object:
        module, _, name = value.name.rpartition(".")
        if module == "torch" and (name in TYPES or name in CONSTANTS):
            return torch_name(TYPES[name].name if name in TYPES else name)
        if module == "torch" and (name in SPARSE or name == "strided"):
            return self._tensors.storages.layout(name)
        raise Refused(f"{value.name}, which torch.load(weights_only=True) refuses")

    def _storage(self, ref: StorageRef) -> object:
        if ref.location == "meta":
            raise Refused("a storage of the meta device")
        self._place(ref.location)
        storages = self._tensors.storages
        slot = storages.slot(ref.span, ref.type, ref.byteorder, id(ref), stays=False)
        return storages.outside(slot)

    def _tensor(self, value: TensorValue, path: tuple[str, ...]) -> object:
        location = _location(value)
        byte = value.type is not None and value.type.name == "uint8"
        stays = byte and location == "cpu" and any(RANDOM_KEY.search(key) for key in path)
        made = self._tensors.call(value, ".".join(path), stays=stays)
        if stays:
            self.kept.devices["cpu"] += 1
            self.kept.stayed.append(".".join(path))
        else:
            self._place(location)
        if value.cls is not None:
            self.kept.made[f"{value.cls} made a tensor"] += 1
        if value.state:
            state = self._state(value.state[0], path)
            if state:
                made = self._tensors.with_state(made, value, state)
        return made

    def _state(self, state: object, path: tuple[str, ...]) -> object:
        """Return the attributes of a tensor: a dict, or one and another of slots."""
        if isinstance(state, tuple) and len(state) == 2:
            made = tuple(self._state(part, path) or {} for part in state)
            return made if any(made) else None
        if not isinstance(state, dict):
            return None
        pairs: dict[object, object] = {}
        self._fill(pairs, state, path)
        return pairs or None

    def _place(self, location: str | None) -> None:
        """Count where something was."""
        if location is not None:
            self.kept.devices[location] += 1

    def _record(self, value: Record, path: tuple[str, ...]) -> object:
        cls = value.cls
        if cls == "torch.device":
            return self._device_object(value)
        if is_module(value):
            self.kept.made["module made a state dict"] += 1
            pairs: dict[object, object] = {}
            self._module(value, "", path, pairs, 0)
            return Call(ORDERED, (), pairs)
        if cls in NAMESPACES and not value.args and value.items == ():
            attributes = {**state_dict(value), **dict(value.pairs)}
            self.kept.made[f"{cls} made a dict"] += 1
            return self._dict(attributes, path)
        alone = not (value.args or value.items or value.state)
        if alone and value.pairs and cls.endswith(("Dict", "dict")):
            self.kept.made[f"{cls} made a dict"] += 1
            return self._dict(dict(value.pairs), path)
        inside = value.args[0] if len(value.args) == 1 and value.pairs is NOTHING else None
        if cls == "builtins.bytearray" and isinstance(inside, bytes):
            return Call(Name("__builtin__", "bytearray"), (inside,))
        if cls == "builtins.frozenset" and isinstance(inside, SetOf):
            self.kept.made["frozenset made a set"] += 1
            return self._made(inside, path)
        if cls == "collections.deque" and isinstance(inside, list):
            self.kept.made["deque made a list"] += 1
            return self._list([*inside, *value.items], path)
        if cls == "pathlib.Path" and isinstance(inside, str):
            self.kept.made["path made text"] += 1
            return inside
        raise Refused(f"a {cls}, which torch.load(weights_only=True) refuses")

    def _device_object(self, value: Record) -> object:
        was = leaf_text(value) or ""
        if was.startswith("meta"):
            return Call(Name("torch", "device"), ("meta",))
        if was != str(self._device):
            self.kept.made["device object set to the target"] += 1
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
        """Collect what ``module.state_dict()`` would."""
        self._charge()
        if depth > self._depth or id(module) in self._open:
            raise Refused("a module that holds itself")
        self._open.add(id(module))
        try:
            for name in _others(module):
                self._refuse((*path, *f"{prefix}{name}".split(".")), NO_STATE)
            for name, tensor in _own(module):
                made = self.value(_detached(tensor), (*path, *f"{prefix}{name}".split(".")))
                if made is not _NOTHING:
                    pairs[f"{prefix}{name}"] = made
            modules = state_dict(module).get("_modules")
            for key, inner in modules.items() if isinstance(modules, dict) else ():
                if isinstance(inner, Record) and is_module(inner):
                    self._module(inner, f"{prefix}{key_text(key)}.", path, pairs, depth + 1)
        finally:
            self._open.discard(id(module))

    def _refuse(self, path: tuple[str, ...], reason: str) -> object:
        if len(self.kept.left_out) < MAX_NOTES:
            self.kept.left_out.append(LeftOut(".".join(path)[:4096] or "(root)", reason))
        elif len(self.kept.left_out) == MAX_NOTES:
            self.kept.left_out.append(LeftOut("…", "more that is not listed"))
        return _NOTHING


def _own(module: Record) -> Iterator[tuple[str, object]]:
    """Yield the parameters and persistent buffers of one module."""
    state = state_dict(module)
    parameters, buffers = state.get("_parameters"), state.get("_buffers")
    passing = state.get("_non_persistent_buffers_set")
    skipped = {x for x in passing.items if isinstance(x, str)} if isinstance(passing, SetOf) else ()
    for found in (parameters, buffers):
        for key, value in found.items() if isinstance(found, dict) else ():
            if value is not None and (found is parameters or key not in skipped):
                yield key_text(key), value


def _others(module: Record) -> Iterator[str]:
    """Yield the names of a module's tensors that its state dict does not have."""
    own = {name for name, _ in _own(module)}
    for key, value in state_dict(module).items():
        if key in ("_parameters", "_buffers") and isinstance(value, dict):
            for name, held in value.items():
                if held is not None and key_text(name) not in own:
                    yield key_text(name)
        elif key != "_modules" and _holds_tensor(value, 0):
            yield key_text(key)


def _holds_tensor(value: object, depth: int) -> bool:
    """Tell whether there is a tensor in plain containers; objects are not looked into."""
    if depth > 3:
        return False
    if isinstance(value, (list, tuple, dict)):
        inside = value.values() if isinstance(value, dict) else value
        return any(_holds_tensor(part, depth + 1) for part in islice(inside, 1000))
    return as_tensor(value) is not None


def _has_hash(made: object) -> bool:
    """Tell whether what a value became can be the key of a dict."""
    if isinstance(made, tuple):
        return all(_has_hash(part) for part in made)
    if isinstance(made, Call):
        return made.function.name not in ("OrderedDict", "Counter", "set", "bytearray")
    return not isinstance(made, (list, dict))


def _detached(value: object) -> object:
    """Return a parameter as the tensor that a state dict has of it."""
    tensor = as_tensor(value)
    if tensor is None:
        return value
    tensor = tensor.copy()
    tensor.is_parameter, tensor.requires_grad, tensor.state = False, False, []
    return tensor


def _location(value: TensorValue) -> str | None:
    """Return the device of a tensor, or of the parts it is made of."""
    found = value.device or (value.storage.location if value.storage else None)
    for part in value.parts.values():
        if found is None and isinstance(part, TensorValue):
            found = _location(part)
    return found
