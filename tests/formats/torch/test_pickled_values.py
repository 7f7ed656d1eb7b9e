"""What torch's rebuild functions leave here, for shapes that no fixture has."""

import struct

import pytest

from formats.core.bundle import Bundle
from formats.core.storage import Buffer, Span
from formats.errors import CorruptError
from formats.limits import DEFAULT
from formats.torch.bundle import finish
from formats.torch.containers import Session, read_bare
from formats.torch.numpy_globals import NumpyArray, NumpyScalar


def text(value: str) -> bytes:
    return b"X" + struct.pack("<I", len(value)) + value.encode()


def call(name: str, *args: bytes) -> bytes:
    module, _, last = name.rpartition(".")
    return f"c{module}\n{last}\n(".encode() + b"".join(args) + b"tR"


def array(
    code: str = "f4", data: bytes = struct.pack("<4f", 1, 2, 3, 4), order: str = "<"
) -> bytes:
    dtype = call("numpy.dtype", text(code), b"K\x00", b"K\x01")
    dtype += b"(K\x03" + text(order) + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    made = call("numpy.core.multiarray._reconstruct", b"cnumpy\nndarray\n", b"K\x00\x85", text("b"))
    return made + b"(K\x01K\x04\x85" + dtype + b"\x89" + b"C" + bytes([len(data)]) + data + b"tb"


def load(body: bytes) -> object:
    session = Session.begin(DEFAULT)
    return read_bare(Span.whole(Buffer(b"\x80\x04" + body + b".", "x")), session, "x").value


def read(body: bytes) -> Bundle:
    session = Session.begin(DEFAULT)
    tree = session.tree()
    tree.add(load(body))
    return finish(tree, session, format="torch", variant="", recorded={})


def test_tensor_from_numpy_keeps_its_device() -> None:
    name = "torch._utils._rebuild_device_tensor_from_numpy"
    found = read(call(name, array(), b"ctorch\nfloat32\n", text("xla:0"), b"\x88"))
    assert found.weights["tensor"].numpy().tolist() == [1, 2, 3, 4]
    assert found.metadata.devices == {"xla:0": 1}
    assert [*found.metadata.tensor_devices.values()] == [("xla:0",)]


def test_tensor_from_numpy_of_another_dtype_says_so() -> None:
    name = "torch._utils._rebuild_xla_tensor"
    found = read(call(name, array(), b"ctorch\nbfloat16\n", text("xla:0"), b"\x88"))
    assert found.weights["tensor"].dtype.name == "float32"
    assert found.metadata.tensor_notes["tensor"]["dtype"] == "torch.bfloat16"


def test_big_endian_array() -> None:
    found = read(array(data=struct.pack(">4f", 1, 2, 3, 4), order=">"))
    assert found.weights["tensor"].numpy().tolist() == [1, 2, 3, 4]


def test_array_of_text() -> None:
    value = load(array("S2", b"ab\0\0cdef"))
    assert isinstance(value, NumpyArray)
    assert value.objects == ["ab", "", "cd", "ef"]


def test_scalar() -> None:
    dtype = call("numpy.dtype", text("i8"), b"K\x00", b"K\x01")
    value = load(call("numpy._core.multiarray.scalar", dtype, b"C\x08" + struct.pack("<q", -5)))
    assert isinstance(value, NumpyScalar)
    assert value.value == -5


def test_meta_tensor_is_named() -> None:
    name = "torch._utils._rebuild_meta_tensor_no_storage"
    body = call(name, b"ctorch\nfloat16\n", b"K\x02K\x03\x86", b"K\x03K\x01\x86", b"\x89")
    found = read(b"}" + text("w") + body + b"s")
    assert not found.weights
    assert found.metadata.left_out[0].name == "w"
    assert found.metadata.devices == {"meta": 1}


def test_wrapper_subclass_keeps_what_it_holds() -> None:
    inner = b"}" + text("scale") + array() + b"s"
    args = (
        b"(cpkg\nInt4Tensor\nctorch\nbfloat16\nK\x02\x85K\x01\x85K\x00ctorch\nstrided\n"
        + text("cpu")
        + b"\x89t"
    )
    made = b"ctorch._utils\n_rebuild_wrapper_subclass\n"
    name = "torch._tensor._rebuild_from_type_v2"
    wrapped = call(name, made, b"cpkg\nInt4Tensor\n", args, inner)
    found = read(b"}" + text("w") + wrapped + b"s")
    assert list(found.weights) == ["w.scale"]
    assert found.encodings["w"].kind == "subclass"
    assert found.encodings["w"].parts == {"scale": "w.scale"}
    assert found.encodings["w"].parameters["class"] == "pkg.Int4Tensor"


def test_stylegan_modules_read_as_modules() -> None:
    state = b"}(" + text("_parameters") + b"}" + text("w") + array() + b"s"
    state += text("_buffers") + b"}" + text("_modules") + b"}u"
    meta = b"}(" + text("class_name") + text("Generator") + text("state") + state + b"u"
    found = read(call("torch_utils.persistence._reconstruct_persistent_obj", meta))
    assert list(found.weights) == ["w"]


@pytest.mark.parametrize(
    "args",
    [
        (),
        (b"N",) * 4,
        (b"N", b"K\x00", b")", b")"),
        (text("x"), b"K\x00", b"K\x01\x85", b"K\x01\x85"),
    ],
)
def test_nonsense_is_corrupt(args: tuple[bytes, ...]) -> None:
    for name in ("_rebuild_tensor", "_rebuild_tensor_v2", "_rebuild_tensor_v3", "_rebuild_qtensor",
                 "_rebuild_sparse_tensor", "_rebuild_nested_tensor"):  # fmt: skip
        with pytest.raises(CorruptError):
            load(call(f"torch._utils.{name}", *args, *((b"N",) * 3 if args else ())))
