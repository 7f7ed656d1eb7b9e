"""numpy's pickle globals as data: arrays become tensors, scalars become Python numbers.

The same constructors have moved between modules over the years (``numpy.core`` became
``numpy._core`` in numpy 2); all their names are in the table.

Spec: https://github.com/numpy/numpy/blob/v2.3.0/numpy/_core/src/multiarray/methods.c
"""

import struct
from collections.abc import Mapping
from math import prod

from formats.containers.pickle.constructors import encode_text
from formats.containers.pickle.unpickler import Constructor, Unpickler
from formats.containers.pickle.values import Global, Node, Record
from formats.core.storage import Buffer, Span
from formats.core.weights import DTYPES, ByteOrder
from formats.torch.globals import device_of, gradient, require, sizes
from formats.torch.tensor_values import StorageRef, TensorValue, TorchType, dtype_of

# fmt: off
KINDS = {
    "b1": "bool", "i1": "int8", "i2": "int16", "i4": "int32", "i8": "int64", "u1": "uint8",
    "u2": "uint16",
    "u4": "uint32", "u8": "uint64", "f2": "float16", "f4": "float32", "f8": "float64",
    "c8": "complex64",
    "c16": "complex128",
}
UNPACK = {
    "bool": "?", "int8": "b", "int16": "h", "int32": "i", "int64": "q", "uint8": "B", "uint16": "H",
    "uint32": "I", "uint64": "Q", "float16": "e", "float32": "f", "float64": "d", "complex64": "ff",
    "complex128": "dd",
}
# fmt: on
NUMPY_TYPES = {name: TorchType(name, DTYPES[name]) for name in DTYPES}


class NumpyType(Node):
    """A ``numpy.dtype``.

    Attributes:
        code: As numpy spells it: ``f8``, ``O8``, ``U7``, ``V12``.
        byteorder: Of its numbers.
        fields: Whether it is a structured type.
    """

    __slots__ = ("byteorder", "code", "fields")

    def __init__(self, code: str) -> None:
        self.code = code.lstrip("<>=|")
        self.byteorder: ByteOrder = "big" if code.startswith(">") else "little"
        self.fields = False

    def build(self, state: object) -> None:
        """Take ``(version, byte order, subtype, names, fields, …)``."""
        if isinstance(state, tuple) and len(state) > 4:
            self.byteorder = "big" if state[1] in (">", b">") else "little"
            self.fields = state[2] is not None or state[3] is not None

    @property
    def type(self) -> TorchType | None:
        """The element type, or None where it is no number."""
        if self.fields:
            return None
        return NUMPY_TYPES.get(KINDS.get(self.code, self.code))


class NumpyArray(Node):
    """A ``numpy.ndarray``, once BUILD has filled it.

    Attributes:
        tensor: The array as a tensor, where it holds numbers.
        objects: Its elements, where it holds objects.
        dtype: What it holds, in numpy's words.
        shape: Its shape.
    """

    __slots__ = ("cls", "dtype", "objects", "shape", "tensor", "where")

    def __init__(self, cls: str, where: str) -> None:
        self.cls = cls
        self.where = where
        self.tensor: TensorValue | None = None
        self.objects: list[object] | None = None
        self.dtype = ""
        self.shape: tuple[int, ...] = ()

    def build(self, state: object) -> None:
        """Take ``(version, shape, dtype, is_fortran, raw bytes or list)``."""
        if isinstance(state, tuple) and len(state) == 4:  # version 0 had no number
            state = (0, *state)
        if not isinstance(state, tuple) or len(state) < 5:
            return
        _, shape, dtype, fortran, data = state[:5]
        row = shape if isinstance(shape, tuple) else (shape,)
        if isinstance(dtype, NumpyType) and len(row) <= 64 and all(type(n) is int for n in row):
            self.fill(dtype, row, data, fortran=bool(fortran))

    def fill(
        self, dtype: NumpyType, shape: tuple[int, ...], data: object, *, fortran: bool
    ) -> None:
        """Note what the array holds."""
        self.dtype, self.shape = dtype.code, shape
        if isinstance(data, list):
            self.objects = data
            return
        if isinstance(data, str):  # Python 2
            data = encode_text(data, "latin1")
        if isinstance(data, bytes) and dtype.code[:1] in ("U", "S") and not dtype.fields:
            self.objects = _texts(data, dtype)
            return
        if isinstance(data, bytes):
            data = Span.whole(Buffer(data, self.where))
        if dtype.type is None or not isinstance(data, Span):
            return
        ref = StorageRef("", dtype.type, None, data.length)
        ref.span, ref.byteorder = data, dtype.byteorder
        strides = None
        if fortran:
            strides = tuple(prod(shape[:axis]) for axis in range(len(shape)))
        self.tensor = TensorValue("strided", dtype.type, shape, storage=ref, strides=strides)
        if not self.cls.endswith("ndarray"):
            self.tensor.cls = self.cls


def _texts(data: bytes, dtype: NumpyType) -> list[object]:
    """Return the elements of an array of fixed-width text."""
    width = int(dtype.code[1:]) if dtype.code[1:8].isdecimal() and len(dtype.code) < 8 else 0
    encoding = "latin-1"
    if dtype.code[0] == "U":
        encoding, width = f"utf-32-{'be' if dtype.byteorder == 'big' else 'le'}", 4 * width
    if not width:
        return []
    cells = (data[at : at + width] for at in range(0, len(data), width))
    return [c.decode(encoding, "replace").rstrip("\0") for c in cells]


class NumpyScalar(Node):
    """A numpy scalar: its Python value, and the type it had."""

    __slots__ = ("dtype", "value")

    def __init__(self, value: object, dtype: str) -> None:
        self.value = value
        self.dtype = dtype


def _dtype(vm: Unpickler, args: tuple[object, ...]) -> object:
    if not args:
        raise vm.corrupt("makes a numpy dtype from nothing")
    code = args[0]
    if isinstance(code, Global):  # ml_dtypes, or a scalar type
        return NumpyType(code.name.rpartition(".")[2])
    if isinstance(code, bytes):
        code = code.decode("latin-1")
    return NumpyType(code) if isinstance(code, str) else Record("numpy.dtype", args)


def _reconstruct(vm: Unpickler, args: tuple[object, ...]) -> object:
    cls = args[0].name if args and isinstance(args[0], Global) else "numpy.ndarray"
    return NumpyArray(cls, vm.where)


def _frombuffer(vm: Unpickler, args: tuple[object, ...]) -> object:
    """Protocol 5 in band: ``(bytes, dtype, shape, order)``."""
    if len(args) < 4 or not isinstance(args[1], NumpyType):
        return Record("numpy.frombuffer", args)
    array = NumpyArray("numpy.ndarray", vm.where)
    array.fill(args[1], sizes(vm, args[2]), args[0], fortran=args[3] in ("F", b"F"))
    return array


def _scalar(vm: Unpickler, args: tuple[object, ...]) -> object:
    del vm
    if len(args) < 2 or not isinstance(args[0], NumpyType):
        return Record("numpy.scalar", args)
    dtype, data = args[0], args[1]
    if isinstance(data, str):
        data = encode_text(data, "latin1")
    if dtype.type is None or not isinstance(data, bytes) or dtype.type.name not in UNPACK:
        return NumpyScalar(data, dtype.code)
    layout = (">" if dtype.byteorder == "big" else "<") + UNPACK[dtype.type.name]
    if struct.calcsize(layout) != len(data):
        return Record("numpy.scalar", args)
    numbers = struct.unpack(layout, data)
    value = complex(*numbers) if len(numbers) > 1 else numbers[0]
    return NumpyScalar(value, dtype.type.name)


def _rebuild_on_device(vm: Unpickler, args: tuple[object, ...]) -> object:
    """``(tensor or numpy array, dtype, device, requires_grad)``: xla, maia, mtia."""
    require(vm, args, 3)
    source = args[0].tensor if isinstance(args[0], NumpyArray) else args[0]
    if not isinstance(source, TensorValue):
        return Record("torch._utils._rebuild_device_tensor", args)
    tensor = source.copy()
    tensor.device = device_of(args[2])
    target = dtype_of(args[1])
    if target is not None and (tensor.type is None or target.name != tensor.type.name):
        # The conversion is torch's to make; the stored elements are what there is.
        tensor.parameters["dtype"] = f"torch.{target.name}"
    if len(args) > 3:
        tensor.requires_grad = gradient(args[3])
    return tensor


# fmt: off
NUMPY: Mapping[str, Constructor] = {
    "numpy.dtype": _dtype,
    "numpy.ndarray": _reconstruct,
    **{f"{module}.{name}": make for module in (
        "numpy.core.multiarray", "numpy._core.multiarray", "numpy.multiarray", "numpy",
        "numpy.core._multiarray_umath",
        "numpy._core._multiarray_umath",
    ) for name, make in {"_reconstruct": _reconstruct, "scalar": _scalar}.items()},
    **{f"{module}._frombuffer": _frombuffer for module in ("numpy.core.numeric",
    "numpy._core.numeric")},
    **{f"torch._utils.{name}": _rebuild_on_device for name in (
        "_rebuild_device_tensor_from_numpy", "_rebuild_device_tensor_from_cpu_tensor",
        "_rebuild_xla_tensor",
    )},
}
# fmt: on
