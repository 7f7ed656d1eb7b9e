"""Megatron-Core's older distributed checkpoints: a folder for each tensor, an array of zarr.

An array is cut into chunks of one size, each a file. Chunks of the ranks are joined when they are
read.

Spec: https://zarr-specs.readthedocs.io/en/latest/v2/v2.0.html and
https://github.com/NVIDIA/Megatron-LM/blob/core_v0.10.0/megatron/core/dist_checkpointing
"""

from itertools import product
from math import prod

from formats.artifact import Artifact
from formats.core.bundle import JSON, Bundle
from formats.core.storage import Span
from formats.core.weights import DTYPES, ByteOrder, DType, Tensor
from formats.errors import CorruptError, UnsupportedError
from formats.torch.bundle import finish
from formats.torch.concatenation import Chunk, join_chunks, narrow, unstack_chunks
from formats.torch.containers import Session, read_any
from formats.torch.megatron_dist import (
    CONFIG,
    add_common,
    find_backend,
    leave_out_extra_state,
    read_json,
)
from formats.torch.megatron_names import EXTRA_STATE, STACKED
from formats.torch.pickled_values import row
from formats.torch.tensor_values import TensorValue, TorchType
from formats.torch.training_groups import find_group_of_name
from formats.torch.walk import Tree

ARRAY = ".zarray"
# fmt: off
_CODES = {
    "b1": "bool", "u1": "uint8", "i1": "int8", "i2": "int16", "i4": "int32", "i8": "int64",
    "f2": "float16", "f4": "float32", "f8": "float64", "c8": "complex64", "c16": "complex128",
}
# fmt: on


def sniff(artifact: Artifact) -> str | None:
    """Return the evidence that this is a checkpoint of zarr arrays."""
    is_zarr = find_backend(artifact) == "zarr"
    return f"a folder with {CONFIG}, which names zarr" if is_zarr else None


def read(artifact: Artifact) -> Bundle:
    """Read a checkpoint of zarr arrays.

    Raises:
        CorruptError: An array is damaged, or a chunk of it is missing.
        LimitError: It asks for more than the limits grant.
        UnsupportedError: An array is compressed, or laid out in another way.
    """
    session = Session.begin(artifact.limits)
    tree = session.tree()
    used = add_common(artifact, session, tree)
    for name in artifact.names:
        folder = artifact.path / name
        if name in used:
            continue
        if not folder.is_dir():
            tree.leave_out(name, "another file of the folder")
            continue
        files = sorted(p.name for p in folder.iterdir())
        if ARRAY in files:
            _add_array(artifact, session, tree, name)
            continue
        for file in files:
            where = f"{name}/{file}"
            if not file.endswith(".pt"):
                tree.leave_out(where, "another file of the folder")
                continue
            value = read_any(Span.whole(artifact.member(where)), session, where).value
            key = where.removesuffix(".pt")
            if EXTRA_STATE.fullmatch(key):
                leave_out_extra_state(tree, key, value)
            else:
                tree.add(value, key, where, find_group_of_name(key))
    return finish(
        tree, session, format="torch-zarr", variant="zarr arrays of Megatron-Core", recorded={}
    )


def _add_array(artifact: Artifact, session: Session, tree: Tree, name: str) -> None:
    """Add one array, or where it has all layers, a tensor for each."""
    where = f"{name}/{ARRAY}"
    about = read_json(artifact, where)
    if not isinstance(about, dict):
        raise CorruptError("is no object", where=where)
    for key, allowed in (
        ("zarr_format", (2,)), ("compressor", (None,)), ("filters", (None, [])), ("order", ("C",)),
    ):  # fmt: skip
        if about.get(key) not in allowed:
            raise UnsupportedError(f"zarr arrays with {key} {about.get(key)!r:.80}", where=where)
    dtype, byteorder = _read_dtype(about.get("dtype"), where)
    shape, sizes = row(about.get("shape")), row(about.get("chunks"))
    if shape is None or sizes is None or len(shape) != len(sizes) or min(sizes, default=1) < 1:
        raise CorruptError("has no shape, or no chunks of it", where=where)
    like = TensorValue("strided", TorchType(dtype.name, dtype), shape)
    separator = about.get("dimension_separator", ".")
    chunks, tensors = [], []
    session.charge(4 * prod(-(-n // m) for n, m in zip(shape, sizes, strict=True)))
    for at in product(*(range(-(-n // m)) for n, m in zip(shape, sizes, strict=True))):
        file = f"{name}/{str(separator).join(map(str, at)) if at else '0'}"
        span = Span.whole(artifact.member(file))
        tensor = Tensor.contiguous(dtype, sizes, span, byteorder=byteorder, origin=file)
        offsets = tuple(i * m for i, m in zip(at, sizes, strict=True))
        inside = tuple(min(m, n - o) for m, n, o in zip(sizes, shape, offsets, strict=True))
        for axis, length in enumerate(inside):  # the last chunk of an axis is stored whole
            tensor = narrow(tensor, axis, 0, length, origin=file)
        chunks.append(Chunk(offsets, inside))
        tensors.append(tensor)
    group = find_group_of_name(name)
    stacked = STACKED.fullmatch(name) if shape and group is None else None
    if stacked and tensors:
        for i, layer in enumerate(unstack_chunks(chunks, tensors, shape, origin=name)):
            tree.add_joined(like, layer, f"{stacked[1]}{i}.{stacked[2]}", group)
        return
    if not tensors:
        whole = Tensor.inline(dtype, shape, b"", origin=name)
    else:
        whole = tensors[0] if len(tensors) == 1 else join_chunks(
            chunks, tensors, shape, origin=name
        )  # fmt: skip
    tree.add_joined(like, whole, name, group)


def _read_dtype(code: JSON, where: str) -> tuple[DType, ByteOrder]:
    """Return the element type that numpy's code, or a name of tensorstore's, stands for."""
    text = code if isinstance(code, str) else ""
    if text == "bfloat16":
        return DTYPES[text], "little"
    named = _CODES.get(text[1:])
    if named is None or text[0] not in "<>|":
        raise UnsupportedError(f"zarr arrays of {code!r:.40}", where=where)
    return DTYPES[named], "big" if text[0] == ">" else "little"
