"""Objects of a TorchScript archive: attributes of ``self``, and the origin of each tensor.

Reading a bundle keeps the tensors and the source text. Lowering the text also needs plain
attributes (numbers, lists, strings, nested modules): they are decoded here, from the same pickle,
by the same decoder that runs nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from formats.containers import jsontext
from formats.containers.pickle.unpickler import Unpickler
from formats.containers.pickle.values import Record
from formats.core.bundle import JSON, Topology
from formats.core.storage import Span
from formats.errors import CorruptError, LimitError
from formats.limits import DEFAULT, Limits
from formats.torch.containers import Session
from formats.torch.pickled_values import attributes, key_text, script_attributes
from formats.torch.tensor_values import StorageRef, TensorValue, as_text, storage_type

PACKED = "__torch__.torch.classes."  # classes of torch's own
INTEGERS = frozenset({"int16", "int32", "int64"})
PLAIN = frozenset({type(None), bool, int, float, str, complex})


@dataclass(frozen=True, slots=True)
class TensorAt:
    """A tensor; ``origin`` is that of the bundle's tensor."""

    origin: str


@dataclass(frozen=True, slots=True)
class DeviceName:
    """A device, which means nothing here."""

    name: str


@dataclass(frozen=True, slots=True)
class Opaque:
    """What is neither plain nor a tensor that plain numbers make: packed parameters, say."""

    what: str


@dataclass(slots=True, eq=False)
class Instance:
    """A module, or an object of a class of the archive's own.

    Attributes:
        cls: Full name of its class.
        attributes: Name -> plain values, lists, tuples, dicts, or what this file declares.
        path: Attributes that lead to it, with dots; "" for the root.
        state: What its ``__setstate__`` is given, where it has its attributes from that. Of a class
            of torch's own, whose text is nowhere, also its numbers, as ``config``.
    """

    cls: str
    attributes: dict[str, object] = field(default_factory=dict)
    path: str = ""
    state: tuple[object, ...] | None = None


@dataclass(frozen=True, slots=True)
class Objects:
    """What an archive holds: the module, and the constants that its text names, in order."""

    root: Instance
    constants: tuple[object, ...] = ()


def read_objects(topology: Topology, limits: Limits = DEFAULT) -> Objects:
    """Return the objects of an archive's topology.

    Raises:
        CorruptError: There are none, or damaged ones.
        LimitError: They nest too deeply, or are too many.
    """
    content = topology.content
    if not isinstance(content, Mapping):
        raise CorruptError("a topology without an archive's members", where="torchscript")
    members = {name: span for name, span in content.items() if isinstance(span, Span)}
    session = Session.begin(limits)
    if "model.json" in members:
        return _of_json(members, session)
    if "data.pkl" not in members:
        raise CorruptError("an archive without data.pkl", where="torchscript")
    made = _Made(limits, members)
    root = made.value(_decode(members, "data.pkl", session), "", "")
    if not isinstance(root, Instance):
        raise CorruptError("holds no module", where="data.pkl")
    constants: tuple[object, ...] = ()
    if "constants.pkl" in members:
        found = _decode(members, "constants.pkl", session)
        if isinstance(found, tuple):
            constants = tuple(
                made.value(c, f"constants.pkl/{i}", f"CONSTANTS.c{i}") for i, c in enumerate(found)
            )
    return Objects(root, constants)


def _decode(members: Mapping[str, Span], name: str, session: Session) -> object:
    return session.load(session.unpickler(members[name], name, _storage))


def _storage(vm: Unpickler, pid: object) -> object:
    """Return a storage without bytes: those are in the bundle's tensors."""
    if not isinstance(pid, tuple) or len(pid) < 5 or as_text(pid[0]) != "storage":
        return Record("persistent id", (pid,))
    element, key = storage_type(pid[1]), as_text(pid[2])
    if element is None or key is None:
        raise vm.corrupt("refers to a storage in a way that we do not know")
    return StorageRef(key, element, as_text(pid[3]), 0)


class _Made:
    """Objects made so far: one that several attributes lead to is one."""

    def __init__(self, limits: Limits, members: Mapping[str, Span] | None = None) -> None:
        self.limits = limits
        self._members = members or {}
        self._known: dict[int, object] = {}
        self._alive: list[object] = []
        self._count = 0

    def value(self, value: object, origin: str, path: str, depth: int = 0) -> object:
        """Return one value of the pickle, and all that is inside.

        Args:
            value: As decoded.
            origin: As the reader calls it: keys between slashes.
            path: The same, with dots, as source text would say it.
            depth: Containers around it.
        """
        self._count += 1
        if depth > self.limits.max_depth or self._count > self.limits.max_values:
            raise LimitError("objects that nest too deeply, or too many", where=origin[:200])
        if type(value) in PLAIN:
            return value
        if isinstance(value, TensorValue):
            is_one = value.layout in ("strided", "quantized")
            return TensorAt(origin) if is_one else Opaque(f"{value.layout} tensor")
        known = self._known.get(id(value))
        if known is not None:
            return known
        self._alive.append(value)
        if isinstance(value, Record):
            return self._record(value, origin, path, depth)
        if isinstance(value, dict):
            entries: dict[object, object] = {}
            self._known[id(value)] = entries
            for key, child in value.items():
                word = key_text(key)
                entries[key] = self.value(child, _slash(origin, word), _dot(path, word), depth + 1)
            return entries
        if isinstance(value, list | tuple):
            items = [
                self.value(child, _slash(origin, str(i)), _dot(path, str(i)), depth + 1)
                for i, child in enumerate(value)
            ]
            made = items if isinstance(value, list) else tuple(items)
            self._known[id(value)] = made
            return made
        return Opaque(type(value).__name__)

    def _record(self, value: Record, origin: str, path: str, depth: int) -> object:
        if value.cls == "torch.device":
            return DeviceName(":".join(str(a)[:80] for a in value.args[:2]))
        state = value.state[0] if value.state else {}
        if not value.cls.startswith("__torch__."):
            return Opaque(value.cls)
        if not isinstance(state, dict):
            return self._stated(value, state, origin, path, depth)
        made = Instance(value.cls, {}, path)
        self._known[id(value)] = made
        for name, child in attributes(state):
            made.attributes[name] = self.value(
                child, _slash(origin, name), _dot(path, name), depth + 1
            )
        return made

    def _stated(self, value: Record, state: object, origin: str, path: str, depth: int) -> Instance:
        """Return an object that keeps something else than its attributes."""
        made = Instance(value.cls, {}, path)
        self._known[id(value)] = made
        for name, child in script_attributes(value.cls, state):
            made.attributes[name] = self.value(
                child, _slash(origin, name), _dot(path, name), depth + 1
            )
        made.state = tuple(made.attributes.values())
        if value.cls.startswith(PACKED):
            made.attributes["config"] = self._config(state)
        else:
            made.attributes = {}
        return made

    def _config(self, state: object) -> tuple[int, ...]:
        """Return the numbers that a packed convolution is made with, or none where it has none."""
        if not isinstance(state, tuple) or len(state) != 3:
            return ()
        first = state[1]
        if isinstance(first, list | tuple) and first and all(type(n) is int for n in first):
            return tuple(first)
        tensor = first[0] if isinstance(first, list | tuple) and first else None
        if not isinstance(tensor, TensorValue) or tensor.storage is None or tensor.type is None:
            return ()
        span = self._members.get(f"data/{tensor.storage.key}")
        if span is None or tensor.type.name not in INTEGERS or len(tensor.shape) != 1:
            return ()
        size = tensor.type.itemsize
        begin = tensor.offset * size
        data = span.read(begin, min(tensor.shape[0] * size, max(span.length - begin, 0)))
        return tuple(
            int.from_bytes(data[i : i + size], "little", signed=True)
            for i in range(0, len(data) - size + 1, size)
        )


def _slash(origin: str, key: str) -> str:
    return f"{origin}/{key}" if origin else key


def _dot(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


# -- torch 1.0 to 1.2 ------------------------------------------------------------------------------


def _of_json(members: Mapping[str, Span], session: Session) -> Objects:
    """Read ``model.json``: modules with parameters and attributes, each with a file of its own."""
    span = members["model.json"]
    limit = session.limits.max_header_bytes
    if span.length > limit:
        raise LimitError(f"a model.json of {span.length} bytes", where="model.json")
    model = jsontext.parse(span.read(0, span.length), where="model.json", limit=limit)
    main = model.get("mainModule") if isinstance(model, dict) else None
    if not isinstance(main, dict):
        raise CorruptError("has no main module", where="model.json")
    stored: list[object] = []
    if "attributes.pkl" in members:
        vm = session.unpickler(members["attributes.pkl"], "attributes.pkl", None)
        vm.constructors = {
            **vm.constructors,
            **{f"torch.jit._pickle.{n}": _tensor for n in ("build_tensor_from_id", "TensorID")},
            **{f"torch.jit._pickle.{n}": _first for n in ("build_intlist", "IntList")},
            **{f"__main__.{n}": _tensor for n in ("TensorID",)},
            **{f"__main__.{n}": _first for n in ("IntList",)},
        }
        found = session.load(vm)
        stored = list(found) if isinstance(found, list | tuple) else []
    made = _Made(session.limits)
    return Objects(_module(main, "", stored, made, session.limits, 0, _code(main)))


def _tensor(vm: Unpickler, args: tuple[object, ...]) -> object:
    del vm, args
    return TensorValue("strided", None, ())


def _first(vm: Unpickler, args: tuple[object, ...]) -> object:
    del vm
    return args[0] if args else None


def _module(
    entry: Mapping[str, JSON], path: str, stored: list[object], made: _Made, limits: Limits,
    depth: int, cls: str,
) -> Instance:  # fmt: skip
    if depth > limits.max_depth:
        raise LimitError(f"modules nested {depth} deep", where="model.json")
    instance = Instance(cls, {}, path)
    for parameter in _rows(entry, "parameters"):
        name = str(parameter.get("name", ""))
        instance.attributes[name] = TensorAt(f"model.json/{_dot(path, name)}")
    for attribute in _rows(entry, "attributes"):
        index = attribute.get("id", "-1")
        number = int(index) if isinstance(index, str | int) else -1
        if 0 <= number < len(stored):
            name = str(attribute.get("name", ""))
            found = made.value(stored[number], f"attributes.pkl/{number}", _dot(path, name))
            instance.attributes[name] = found
    for child in _rows(entry, "submodules"):
        name = str(child.get("name", ""))
        instance.attributes[name] = _module(
            child, _dot(path, name), stored, made, limits, depth + 1, _code(child)
        )
    return instance


def _rows(entry: Mapping[str, JSON], name: str) -> list[dict[str, JSON]]:
    found = entry.get(name)
    return [row for row in found if isinstance(row, dict)] if isinstance(found, list) else []


def _code(entry: Mapping[str, JSON]) -> str:
    """Return the file that holds a module's methods."""
    arena = entry.get("torchscriptArena")
    key = arena.get("key") if isinstance(arena, dict) else None
    return key.removeprefix("code/").removesuffix(".py") if isinstance(key, str) else ""
