"""What a pickle says of torch's tensors: element types, storages, views of them.

No bytes are read; the reader of the container fills in where a storage's bytes are.

Spec: https://github.com/pytorch/pytorch/blob/v2.13.0/torch/_utils.py
"""

from dataclasses import dataclass

from formats.containers.pickle.unpickler import Unpickler
from formats.containers.pickle.values import MAX_STATES, Global, Node
from formats.core.storage import Span
from formats.core.weights import DTYPES, ByteOrder, DType


@dataclass(frozen=True, slots=True)
class TorchType:
    """One of torch's element types.

    Attributes:
        name: torch's name, without ``torch.``.
        dtype: What its bytes are; integers of the same width for quantised and opaque types.
        per_byte: Elements in a byte of the storage, for packed types whose shapes count elements.
    """

    name: str
    dtype: DType
    per_byte: int = 1

    @property
    def itemsize(self) -> int:
        """Bytes of an element, as torch counts them for storages."""
        return 1 if self.per_byte > 1 else self.dtype.itemsize

    @property
    def is_quantized(self) -> bool:
        """Whether it is a quantised type."""
        return self.name.startswith(("q", "quint"))


# fmt: off
_SAME = {
    "float64": "double", "float32": "float", "float16": "half", "int64": "long", "int32": "int",
    "int16": "short",
    "int8": "", "uint8": "", "bool": "", "bfloat16": "", "complex64": "cfloat",
    "complex128": "cdouble",
    "complex32": "chalf", "uint16": "", "uint32": "", "uint64": "", "float8_e4m3fn": "",
    "float8_e5m2": "",
    "float8_e4m3fnuz": "", "float8_e5m2fnuz": "", "float8_e8m0fnu": "",
}
_OTHER = {
    "qint8": ("int8", 1), "quint8": ("uint8", 1), "qint32": ("int32", 1), "quint4x2": ("uint4", 2),
    "quint2x4": ("uint2", 4), "bits8": ("uint8", 1), "bits16": ("uint16", 1), "bits1x8": ("uint8",
    1),
    "bits2x4": ("uint8", 1), "bits4x2": ("uint8", 1), "float4_e2m1fn_x2": ("uint8", 1),
}
TYPES: dict[str, TorchType] = {name: TorchType(name, DTYPES[name]) for name in _SAME}
TYPES |= {alias: TYPES[name] for name, alias in _SAME.items() if alias}
TYPES |= {name: TorchType(name, DTYPES[ours], packed) for name, (ours, packed) in _OTHER.items()}
# torch's own int1 … uint7 hold one element a byte.
for _n in range(1, 8):
    TYPES |= {f"{u}int{_n}": TorchType(f"{u}int{_n}", DTYPES[f"{u}int8"]) for u in ("", "u")}
STORAGES: dict[str, TorchType] = {f"{prefix}Storage": TYPES[name] for prefix, name in {
    "Double": "float64", "Float": "float32", "Half": "float16", "Long": "int64", "Int": "int32",
    "Short": "int16",
    "Char": "int8", "Byte": "uint8", "Bool": "bool", "BFloat16": "bfloat16",
    "ComplexDouble": "complex128",
    "ComplexFloat": "complex64", "ComplexHalf": "complex32", "QInt8": "qint8", "QInt32": "qint32",
    "QUInt8": "quint8",
    "QUInt4x2": "quint4x2", "QUInt2x4": "quint2x4", "Untyped": "uint8", "_Untyped": "uint8",
    "": "uint8",
}.items()}
# fmt: on


class StorageRef:
    """A storage that a pickle refers to.

    Attributes:
        key: Its name in the container.
        type: Element type.
        location: Device tag as recorded, or None.
        nbytes: Size as the pickle says.
        span: Its bytes, once the container has been asked.
    """

    __slots__ = ("byteorder", "key", "location", "nbytes", "span", "type")

    def __init__(self, key: str, type_: TorchType, location: str | None, nbytes: int) -> None:
        self.key = key
        self.type = type_
        self.location = location
        self.nbytes = nbytes
        self.span: Span | None = None
        self.byteorder: ByteOrder = "little"


class TensorValue(Node):
    """A tensor as a pickle describes it.

    Attributes:
        layout: ``strided``, ``quantized``, ``sparse_coo`` and its sisters, ``nested``, ``subclass``
            (a Python class that holds other tensors), ``meta``.
        type: Element type; None where the pickle names one we do not know.
        storage: Where the elements are, for ``strided`` and ``quantized``.
        offset: Elements from the start of the storage.
        shape: Logical shape.
        strides: In elements; None for row-major.
        requires_grad: As recorded; None where it is not.
        is_parameter: Whether it was a Parameter.
        device: Device recorded beside the tensor rather than on its storage.
        cls: Dotted class name when it is no plain tensor.
        flags: ``conj``, ``neg``: the view is the conjugate, the negative of what is stored.
        parts: Role → tensor, where several make it up.
        parameters: What else its layout needs (axis, scheme, coalesced).
        state: What BUILD or a subclass attached.
    """

    __slots__ = (
        "cls", "device", "flags", "is_parameter", "layout", "offset", "parameters", "parts",
        "requires_grad", "shape", "state", "storage", "strides", "type",
    )  # fmt: skip

    def __init__(
        self,
        layout: str,
        type_: TorchType | None,
        shape: tuple[int, ...],
        *,
        storage: StorageRef | None = None,
        offset: int = 0,
        strides: tuple[int, ...] | None = None,
        requires_grad: bool | None = None,
    ) -> None:
        self.layout = layout
        self.type = type_
        self.shape = shape
        self.storage = storage
        self.offset = offset
        self.strides = strides
        self.requires_grad = requires_grad
        self.is_parameter = False
        self.device: str | None = None
        self.cls: str | None = None
        self.flags: frozenset[str] = frozenset()
        self.parts: dict[str, object] = {}
        self.parameters: dict[str, str | int | float | bool | None] = {}
        self.state: list[object] = []

    def build(self, state: object) -> None:
        """Keep Python attributes of the tensor."""
        if isinstance(state, tuple) and state and isinstance(state[0], bool):
            self.requires_grad = state[0]  # a Variable of torch 0.1 to 0.3: (…, volatile, hooks)
        elif len(self.state) < MAX_STATES:
            self.state.append(state)

    def copy(self) -> "TensorValue":
        """Return another tensor of the same description."""
        other = TensorValue(self.layout, self.type, self.shape)
        for name in TensorValue.__slots__:
            setattr(other, name, getattr(self, name))
        other.state = list(self.state)
        return other


def storage_type(value: object) -> TorchType | None:
    """Return the element type of a storage class such as ``torch.cuda.FloatStorage``."""
    return STORAGES.get(value.name.rpartition(".")[2]) if isinstance(value, Global) else None


def dtype_of(value: object) -> TorchType | None:
    """Return the element type that ``torch.float32`` and the like name."""
    return TYPES.get(value.name.rpartition(".")[2]) if isinstance(value, Global) else None


def as_text(value: object) -> str | None:
    """Return a key or a location as text; Python 2 wrote bytes."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return str(value) if type(value) is int else value if isinstance(value, str) else None


def parse_storage_id(
    vm: Unpickler, pid: tuple[object, ...]
) -> tuple[TorchType, str, str | None, int]:
    """Return the element type, key, location and bytes of ``("storage", type, key, location, n)``.

    Raises:
        CorruptError: It is no such tuple.
    """
    element, key, numel = storage_type(pid[1]), as_text(pid[2]), pid[4]
    if element is None or key is None or type(numel) is not int or numel < 0:
        raise vm.corrupt("refers to a storage by an id that torch does not write")
    return element, key, as_text(pid[3]), numel * element.itemsize
