"""Constructors for the built-in and standard library types that model pickles use as plain data."""

from collections.abc import Mapping

from formats.containers.pickle.decoder import with_keywords
from formats.containers.pickle.unpickler import Constructor, Unpickler
from formats.containers.pickle.values import Global, Map, Record, SetOf, set_pairs
from formats.core.storage import Span


def _pairs(vm: Unpickler, value: object) -> list[tuple[object, object]]:
    """Return the entries of what a dict class is made from: a dict, or pairs."""
    if not isinstance(value, (dict, list, tuple)):
        raise vm.corrupt(f"makes a dict from a {type(value).__name__}")
    vm.charge(len(value))
    if isinstance(value, dict):
        return list(value.items())
    pairs = []
    for pair in value:
        if not isinstance(pair, (list, tuple)) or len(pair) != 2:
            raise vm.corrupt("makes a dict from something that is no list of pairs")
        pairs.append((pair[0], pair[1]))
    return pairs


def _dict_class(cls: str) -> Constructor:
    def make(vm: Unpickler, args: tuple[object, ...]) -> Map:
        result = Map(cls)
        if args and args[0] is not None:
            set_pairs(result, _pairs(vm, args[0]))
        return result

    return make


def _defaultdict(vm: Unpickler, args: tuple[object, ...]) -> Map:
    result = Map("collections.defaultdict")
    if len(args) > 1:
        set_pairs(result, _pairs(vm, args[1]))
    return result


def elements(vm: Unpickler, value: object) -> list[object]:
    """Return the elements of a plain sequence or set."""
    inside = value.items if isinstance(value, (SetOf, Record)) else value
    if not isinstance(inside, (list, tuple, dict)):
        raise vm.corrupt(f"makes a sequence from a {type(value).__name__}")
    vm.charge(len(inside))
    return list(inside)


def _list(vm: Unpickler, args: tuple[object, ...]) -> list[object]:
    return elements(vm, args[0]) if args else []


def _tuple(vm: Unpickler, args: tuple[object, ...]) -> tuple[object, ...]:
    return tuple(elements(vm, args[0])) if args else ()


def _set(vm: Unpickler, args: tuple[object, ...]) -> SetOf:
    return SetOf(elements(vm, args[0]) if args else [])


def encode_text(value: str, encoding: object) -> bytes | None:
    """Return text as the bytes it stands for, where the encoding can say so."""
    if encoding not in ("latin1", "latin-1", "utf-8", "utf8", "ascii", "UTF-8"):
        return None
    try:
        return value.encode(str(encoding))
    except UnicodeEncodeError:
        return None


def _encode(vm: Unpickler, args: tuple[object, ...]) -> object:
    if args and isinstance(args[0], str):
        vm.charge(len(args[0]) >> 7)
        data = encode_text(args[0], args[1] if len(args) > 1 else "utf-8")
        if data is not None:
            return data
    return Record("_codecs.encode", args)


def _bytes(vm: Unpickler, args: tuple[object, ...]) -> object:
    if not args:
        return b""
    if isinstance(args[0], (bytes, Span)):
        return args[0]
    if isinstance(args[0], str):
        return _encode(vm, args)
    if isinstance(args[0], list):
        vm.charge(len(args[0]))
    if isinstance(args[0], list) and all(type(n) is int and 0 <= n < 256 for n in args[0]):
        return bytes(args[0])
    return Record("builtins.bytes", args)


def _number(cls: str, *kinds: type) -> Constructor:
    def make(vm: Unpickler, args: tuple[object, ...]) -> object:
        del vm
        if len(args) == 1 and type(args[0]) in kinds:
            return args[0]
        return Record(cls, args)

    return make


def _complex(vm: Unpickler, args: tuple[object, ...]) -> object:
    del vm
    match args:
        case (float(real), float(imaginary)):
            return complex(real, imaginary)
    return Record("builtins.complex", args)


def _new(vm: Unpickler, args: tuple[object, ...]) -> object:
    if not args:
        raise vm.corrupt("makes an object of no class")
    return vm.call(args[0], args[1:], new=True)


def _new_ex(vm: Unpickler, args: tuple[object, ...]) -> object:
    if len(args) != 3:
        raise vm.corrupt("makes an object of no class")
    return with_keywords(vm, vm.call(args[0], args[1], new=True), args[2])


def _reconstructor(vm: Unpickler, args: tuple[object, ...]) -> object:
    """Protocols 0 and 1: ``(class, base, state of the base)``."""
    if len(args) != 3:
        raise vm.corrupt("makes an object of no class")
    value = vm.call(args[0], (), new=True)
    base = args[2]
    if isinstance(value, Record) and base is not None:
        if isinstance(base, dict):
            with_keywords(vm, value, base)
        elif isinstance(base, (list, SetOf)):
            value.extend(elements(vm, base))
        else:
            value.args = (base,)
    elif isinstance(value, dict) and isinstance(base, dict):
        vm.charge(len(base))
        value.update(base)
    return value


def _getattr(vm: Unpickler, args: tuple[object, ...]) -> object:
    """An attribute of a global is a global of a longer name; of anything else, a record."""
    if len(args) == 2 and isinstance(args[1], str):
        if isinstance(args[0], Global):
            return vm.find_global(args[0].name, args[1])
        if isinstance(args[0], Record):  # a bound method: nothing runs until it is called
            return Record("builtins.getattr", args)
    vm.suspect("builtins.getattr")
    return Record("builtins.getattr", args)


def _deque(vm: Unpickler, args: tuple[object, ...]) -> list[object]:
    return elements(vm, args[0]) if args else []


def _path(vm: Unpickler, args: tuple[object, ...]) -> object:
    del vm
    if args and all(isinstance(a, str) for a in args):
        first, *rest = map(str, args)
        return "/".join([first.rstrip("/") if rest else first, *rest]) or "/"
    return Record("pathlib.Path", args)


# fmt: off
CORE: Mapping[str, Constructor] = {
    "collections.OrderedDict":    _dict_class("collections.OrderedDict"),
    "collections.Counter":        _dict_class("collections.Counter"),
    "collections.defaultdict":    _defaultdict,
    "collections.deque":          _deque,
    "builtins.dict":              _dict_class("builtins.dict"),
    "builtins.list":              _list,
    "builtins.tuple":             _tuple,
    "builtins.set":               _set,
    "builtins.frozenset":         _set,
    "builtins.bytes":             _bytes,
    "builtins.bytearray":         _bytes,
    "builtins.complex":           _complex,
    "builtins.int":               _number("builtins.int", int, bool),
    "builtins.long":              _number("builtins.int", int, bool),
    "builtins.bool":              _number("builtins.bool", bool),
    "builtins.float":             _number("builtins.float", float, int),
    "builtins.str":               _number("builtins.str", str),
    "builtins.unicode":           _number("builtins.str", str),
    "builtins.getattr":           _getattr,
    "_codecs.encode":             _encode,
    "copyreg.__newobj__":         _new,
    "copyreg.__newobj_ex__":      _new_ex,
    "copyreg._reconstructor":     _reconstructor,
    **{f"pathlib.{m}{c}": _path for m in ("", "_local.") for c in (
        "Path", "PosixPath", "WindowsPath", "PurePath", "PurePosixPath", "PureWindowsPath")},
}
# fmt: on
