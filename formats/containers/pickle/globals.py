"""A classification of pickle globals: harmless, unknown, or able to run code.

The tables only decide what is *reported*; nothing is ever called, whatever they say. A function is
distinguished from a class by its name, as usually written: classes are capitalised.
"""

import sys

# Python 2's names for modules.
CORE_NAMES = {
    "__builtin__": "builtins",
    "copy_reg": "copyreg",
    "cPickle": "pickle",
    "UserDict": "collections",
    "torch.tensor": "torch._tensor",  # moved in torch 1.9
}

# fmt: off
# Standard library classes and rebuilding functions that only make data.
HARMLESS = frozenset({
    "_codecs.encode",
    "_collections._tuplegetter", "_io.BytesIO", "_io.StringIO", "_random.Random", "random.Random",
    "array.array", "array._array_reconstructor",
    "builtins.Ellipsis", "builtins.NotImplemented", "builtins.bool", "builtins.bytearray",
    "builtins.bytes",
    "builtins.complex", "builtins.dict", "builtins.float", "builtins.frozenset", "builtins.int",
    "builtins.list",
    "builtins.long", "builtins.object", "builtins.property", "builtins.range", "builtins.set",
    "builtins.slice",
    "builtins.str", "builtins.tuple", "builtins.unicode", "builtins.xrange", "builtins.zip",
    "builtins.enumerate",
    "builtins.iter", "builtins.reversed",
    "collections.ChainMap", "collections.Counter", "collections.OrderedDict",
    "collections.UserDict",
    "collections.UserList", "collections.defaultdict", "collections.deque",
    "copyreg.__newobj__", "copyreg.__newobj_ex__", "copyreg._reconstructor",
    "dataclasses._HAS_DEFAULT_FACTORY_CLASS", "dataclasses._MISSING_TYPE",
    "decimal.Decimal", "fractions.Fraction", "functools.partial", "functools._reconstruct",
    "inspect.Parameter", "inspect.Signature", "inspect._ParameterKind", "inspect.BoundArguments",
    "io.BytesIO", "io.StringIO",
    "itertools.chain", "itertools.count", "itertools.cycle", "itertools.islice", "itertools.repeat",
    "logging.getLogger", "logging.Logger",
    "numpy.random._pickle.__bit_generator_ctor", "numpy.random._pickle.__generator_ctor",
    "numpy.random._pickle.__randomstate_ctor", "numpy.random.__RandomState_ctor",
    "numpy.random.__bit_generator_ctor", "numpy.random.__generator_ctor",
    "operator.attrgetter", "operator.itemgetter", "operator.methodcaller",
    "pathlib.Path", "pathlib.PosixPath", "pathlib.PurePath", "pathlib.PurePosixPath",
    "pathlib.PureWindowsPath", "pathlib.WindowsPath", "pathlib._local.PosixPath",
    "pathlib._local.WindowsPath",
    "pathlib._local.PurePosixPath", "pathlib._local.PureWindowsPath",
    "re._compile", "string.Template",
    "torch._C._TensorBase", "torch._C.device", "torch._C.dtype", "torch.device", "torch.dtype",
    "types.SimpleNamespace", "uuid.SafeUUID", "uuid.UUID",
    "weakref.ref", "weakref.WeakKeyDictionary", "weakref.WeakSet", "weakref.WeakValueDictionary",
    "xarray.core.dataset.Dataset", "zoneinfo.ZoneInfo._unpickle",
})
# Everything in them only makes values, whatever its name.
VALUE_MODULES = frozenset({"datetime", "numpy.random._pickle", "numpy.ma.core"})
HARMLESS_MODULES = frozenset({"argparse", "calendar", "collections", "datetime", "enum",
"ipaddress", "zoneinfo"})
# Not of the standard library, and good for running code all the same.
DANGEROUS_ROOTS = frozenset({
    "__main__.__builtins__", "aiohttp", "cffi", "cloudpickle", "dill", "fabric", "httplib",
    "httplib2", "joblib",
    "nt", "paramiko", "pip", "pkg_resources", "popen2", "commands", "requests", "setuptools",
    "thread",
    "urllib2", "urllib3",
})
# fmt: on


def is_suspicious(name: str, *, new: bool) -> bool:
    """Return whether a callable should be reported when a pickle calls it.

    Args:
        name: Its dotted name.
        new: Only ``__new__`` of a class would run, not the callable itself.
    """
    if name in HARMLESS:
        return False
    module, _, last = name.rpartition(".")
    if module in VALUE_MODULES or (module.startswith("numpy.") and "__pyx_unpickle" in last):
        return False
    if module in HARMLESS_MODULES and is_class_name(last):
        return False
    root = name.partition(".")[0]
    if root in sys.stdlib_module_names or root in DANGEROUS_ROOTS:
        return root != "__main__" or not (new or is_class_name(last))
    return not new and not is_class_name(last)


def is_dangerous(name: str) -> bool:
    """Return whether a function that a pickle only refers to is one for running code."""
    root = name.partition(".")[0]
    is_known = root in sys.stdlib_module_names or root in DANGEROUS_ROOTS
    is_function = not is_class_name(name.rpartition(".")[2])
    return is_known and root != "__main__" and is_function and is_suspicious(name, new=False)


def is_class_name(last: str) -> bool:
    """Return whether the last part of a dotted name is written like a class."""
    bare = last.lstrip("_")
    return bare[:1].isupper()
