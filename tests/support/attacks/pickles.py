"""An assembler for pickles that no pickler would write, and the torch files around them.

Each function returns the opcodes that push one value. Opcodes:
https://github.com/python/cpython/blob/v3.13.0/Lib/pickletools.py
"""

import io
import struct
import tarfile
import zipfile
from collections.abc import Iterable, Mapping

import numpy as np

PROTO = b"\x80\x02"
MARK, STOP, REDUCE, BUILD, POP, DUP = b"(", b".", b"R", b"b", b"0", b"2"
NONE, TRUE, EMPTY_DICT, EMPTY_LIST, EMPTY_TUPLE = b"N", b"\x88", b"}", b"]", b")"
SETITEM, APPEND, NEWOBJ, NEWOBJ_EX, OBJ, STACK_GLOBAL = b"s", b"a", b"\x81", b"\x92", b"o", b"\x93"
PERSID = b"Q"
MAGIC = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19."
DTYPES = {"f4": "FloatStorage", "f8": "DoubleStorage", "i8": "LongStorage", "u1": "ByteStorage"}


def text(value: str) -> bytes:
    data = value.encode("utf-8", "surrogatepass")
    return b"X" + struct.pack("<I", len(data)) + data


def short_bytes(value: bytes) -> bytes:
    return b"B" + struct.pack("<I", len(value)) + value


def number(value: int) -> bytes:
    if -(1 << 31) <= value < 1 << 31:
        return b"J" + struct.pack("<i", value)
    data = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    return b"\x8b" + struct.pack("<I", len(data)) + data


def value(x: object) -> bytes:
    """Return the opcodes for plain data; ``bytes`` are opcodes already."""
    if isinstance(x, bytes):
        return x
    if x is None:
        return NONE
    if isinstance(x, bool):
        return b"\x88" if x else b"\x89"
    if isinstance(x, int):
        return number(x)
    if isinstance(x, float):
        return b"G" + struct.pack(">d", x)
    if isinstance(x, str):
        return text(x)
    if isinstance(x, tuple):
        return MARK + b"".join(map(value, x)) + b"t"
    if isinstance(x, list):
        return EMPTY_LIST + MARK + b"".join(map(value, x)) + b"e"
    if isinstance(x, Mapping):
        return EMPTY_DICT + MARK + b"".join(value(k) + value(v) for k, v in x.items()) + b"u"
    raise TypeError(type(x))


def named(dotted: str) -> bytes:
    module, _, name = dotted.rpartition(".")
    return f"c{module}\n{name}\n".encode()


def call(dotted: str | bytes, *args: object) -> bytes:
    function = named(dotted) if isinstance(dotted, str) else dotted
    return function + value(args) + REDUCE


def build(obj: bytes, state: object) -> bytes:
    return obj + value(state) + BUILD


def put(index: int) -> bytes:
    return b"r" + struct.pack("<I", index)


def get(index: int) -> bytes:
    return b"j" + struct.pack("<I", index)


def storage(key: str, numel: int, kind: str = "FloatStorage", location: str = "cpu") -> bytes:
    return value(("storage", named(f"torch.{kind}"), key, location, numel)) + PERSID


def tensor(
    key: str,
    shape: Iterable[int],
    *,
    numel: int | None = None,
    kind: str = "FloatStorage",
    offset: object = 0,
    strides: Iterable[int] | None = None,
) -> bytes:
    shape = tuple(shape)
    if strides is None:
        steps, step = [], 1
        for n in reversed(shape):
            steps.append(step)
            step *= max(n, 1)
        strides = reversed(steps)
    if numel is None:
        numel = int(np.prod(shape))
    hooks = call("collections.OrderedDict")
    return call(
        "torch._utils._rebuild_tensor_v2",
        storage(key, numel, kind), offset, shape, tuple(strides), False, hooks,
    )  # fmt: skip


def state_dict(arrays: Mapping[str, np.ndarray], extra: Mapping[str, bytes] | None = None) -> bytes:
    """Return a whole pickle: an OrderedDict of tensors, and further entries before them."""
    entries = b"".join(text(k) + v for k, v in (extra or {}).items())
    for i, (name, array) in enumerate(arrays.items()):
        kind = DTYPES[array.dtype.str[1:]]
        entries += text(name) + tensor(str(i), array.shape, kind=kind)
    return PROTO + call("collections.OrderedDict") + MARK + entries + b"u" + STOP


def weights(seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        "fc.weight": rng.standard_normal((3, 4)).astype("f4"),
        "fc.bias": rng.standard_normal(4).astype("f4"),
        "steps": rng.integers(0, 9, 2),
    }


def torch_zip(
    pickle: bytes,
    arrays: Mapping[str, np.ndarray] | None = None,
    *,
    members: Mapping[str, bytes] | None = None,
    compression: int = zipfile.ZIP_STORED,
) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", compression) as archive:
        archive.writestr("m/data.pkl", pickle)
        archive.writestr("m/byteorder", "little")
        for i, array in enumerate((weights() if arrays is None else arrays).values()):
            archive.writestr(f"m/data/{i}", array.tobytes())
        archive.writestr("m/version", "3\n")
        for name, data in (members or {}).items():
            archive.writestr(name, data)
    return stream.getvalue()


def torch_stream(pickle: bytes, arrays: Mapping[str, np.ndarray] | None = None) -> bytes:
    arrays = weights() if arrays is None else arrays
    system = PROTO + value({"protocol_version": 1001, "little_endian": True}) + STOP
    keys = PROTO + value([str(i) for i in range(len(arrays))]) + STOP
    blobs = b"".join(struct.pack("<q", a.size) + a.tobytes() for a in arrays.values())
    return MAGIC + PROTO + number(1001) + STOP + system + pickle + keys + blobs


def torch_tar(arrays: Mapping[str, np.ndarray] | None = None) -> bytes:
    """Return what torch wrote before 0.1.10, a dict of these arrays."""
    arrays = weights() if arrays is None else arrays
    storages = tensors = PROTO + number(len(arrays)) + STOP
    entries = EMPTY_DICT
    for i, (name, array) in enumerate(arrays.items()):
        kind = DTYPES[array.dtype.str[1:]]
        storages += PROTO + value((str(i), "cpu", named(f"torch.{kind}"))) + STOP
        storages += struct.pack("<q", array.size) + array.tobytes()
        cls = named(f"torch.{kind.replace('Storage', 'Tensor')}")
        tensors += PROTO + value((f"t{i}", str(i), cls)) + STOP + struct.pack("<ii", array.ndim, 0)
        steps = [s // array.itemsize for s in array.strides]
        tensors += struct.pack(f"<{2 * array.ndim + 1}q", *array.shape, *steps, 0)
        entries += text(name) + text(f"t{i}") + PERSID + SETITEM
    return tar_of({
        "sys_info": PROTO + value({"protocol_version": 1000, "little_endian": True}) + STOP,
        "pickle": PROTO + entries + STOP,
        "storages": storages + PROTO + EMPTY_LIST + STOP,
        "tensors": tensors,
    })  # fmt: skip


def tar_of(members: Mapping[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return stream.getvalue()
