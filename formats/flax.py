"""Flax: the MessagePack of `flax.serialization`, a file or the shards of a Hugging Face folder.

A file is a tree of maps whose leaves are arrays: extensions with shape, dtype and row-major bytes.
An array of more than 1 GiB is stored in chunks. Tensors are named by their path, joined by slashes
as in the index of shards.

Spec: https://github.com/google/flax/blob/v0.10.2/flax/serialization.py
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import cast

from formats import hugging_face
from formats.artifact import Artifact
from formats.containers import jsontext
from formats.containers.msgpack import Extension, Value, parse
from formats.core.bundle import JSON, Bundle, LeftOut, Metadata
from formats.core.plurals import count
from formats.core.storage import Span
from formats.core.weights import DTYPES, DType, Strided, Tensor
from formats.errors import CorruptError, UnsupportedError
from formats.limits import Limits

SINGLE, INDEX = "flax_model.msgpack", "flax_model.msgpack.index.json"
ARRAY, COMPLEX, SCALAR = 1, 2, 3  # types of extensions
CHUNKED = "__msgpack_chunked_array__"
OPTIMIZER = "opt_state"  # of a train state
# A map whose first key is a string; an extension that begins as a list of three, a list first.
MAP = re.compile(rb"(?:[\x81-\x8f]|\xde..|\xdf.{4})(?:[\xa1-\xbf]|\xd9.)[ -~]", re.DOTALL)
EXTENSION = re.compile(
    rb"(?:[\xd4-\xd8]|\xc7.|\xc8..|\xc9.{4})[\x01\x03]\x93[\x90-\x9f]", re.DOTALL
)


def sniff(artifact: Artifact) -> str | None:
    """Return the evidence that this is a tree of arrays, or a folder with one."""
    if artifact.is_folder:
        name = next((n for n in (INDEX, SINGLE) if n in artifact.names), None)
        return None if name is None else f"a folder with {name}"
    if artifact.name == INDEX:
        return "an index of shards, by its name"
    head = artifact.head
    has_array = MAP.match(head) and (EXTENSION.search(head) or CHUNKED.encode() in head)
    return "MessagePack with arrays of Flax" if has_array else None


def read(artifact: Artifact) -> Bundle:
    """Read a file, the shards that an index names, or the weights of a folder.

    Raises:
        CorruptError: It is damaged, or the index and the shards do not fit.
        LimitError: It is over a limit.
        SafetyError: The index names a file outside its folder.
        UnsupportedError: An array has a dtype that is not known.
    """
    found = _Found(artifact.limits)
    is_indexed = INDEX in (artifact.names if artifact.is_folder else (artifact.name,))
    shards: list[str] = []
    if is_indexed:
        mapped = _read_index(artifact)
        shards = list(dict.fromkeys(mapped.values()))
        for shard in shards:
            found.add(parse(Span.whole(artifact.member(shard)), artifact.limits), shard)
        missing = sorted(mapped.keys() - found.weights.keys())
        if missing:
            tensors = count("tensor", len(missing))
            text = f"the index names {tensors} that no shard holds: {missing[0]!r:.80}"
            raise CorruptError(text, where=artifact.path)
    elif artifact.is_folder:
        shards = [SINGLE]
        found.add(parse(Span.whole(artifact.member(SINGLE)), artifact.limits), SINGLE)
    else:
        found.add(parse(artifact.span, artifact.limits), artifact.name)
    variant = f"{count('shard', len(shards))} with an index" if is_indexed else "MessagePack"
    metadata = Metadata(
        "flax", variant, framework="flax", user=found.user, left_out=tuple(found.left_out)
    )
    return Bundle(
        metadata, found.weights, {"optimizer": found.optimizer} if found.optimizer else {},
        topology=hugging_face.read_topology(artifact),
        assets=hugging_face.read_assets(artifact, {*shards, INDEX}),
    )  # fmt: skip


def _read_index(artifact: Artifact) -> dict[str, str]:
    """Return name of a tensor → its file, as an index has it."""
    limit = artifact.limits.max_header_bytes
    span = Span.whole(artifact.member(INDEX))
    value = jsontext.parse(span.read(0, min(span.length, limit)), where=INDEX, limit=limit)
    mapped = value.get("weight_map") if isinstance(value, dict) else None
    if not isinstance(mapped, dict) or not all(isinstance(v, str) for v in mapped.values()):
        raise CorruptError("has no weight_map", where=INDEX)
    return cast("dict[str, str]", mapped)


@dataclass(slots=True)
class _Found:
    """What the trees hold, by path."""

    limits: Limits
    weights: dict[str, Tensor] = field(default_factory=dict)
    optimizer: dict[str, Tensor] = field(default_factory=dict)
    user: dict[str, JSON] = field(default_factory=dict)
    left_out: list[LeftOut] = field(default_factory=list)

    def add(self, tree: Value, where: str) -> None:
        """Add the leaves of a tree."""
        if not isinstance(tree, dict):
            raise CorruptError("is no tree of arrays", expected="a map", where=where)
        for path, leaf in _leaves(tree, ""):
            tensor = _tensor(leaf, f"{where}: {path}", self.limits)
            kept = self.optimizer if path.split("/")[0] == OPTIMIZER else self.weights
            if path in self.weights or path in self.optimizer:
                raise CorruptError(f"{path!r:.80} is stored twice", where=where)
            if tensor is not None:
                kept[path] = tensor.with_origin(path)
            elif isinstance(leaf, Extension | Span):
                self.left_out.append(LeftOut(path, "binary data that is no array"))
            elif not isinstance(leaf, dict):
                self.user[path] = cast("JSON", leaf)


def _leaves(tree: dict[str, Value], prefix: str) -> Iterator[tuple[str, Value]]:
    """Yield the leaves of a tree with their paths; a chunked array is a leaf."""
    for key, value in tree.items():
        path = f"{prefix}{key}"
        inner = value
        if isinstance(inner, list) and any(isinstance(v, Extension | dict | list) for v in inner):
            inner = {str(i): v for i, v in enumerate(inner)}
        if isinstance(inner, dict) and CHUNKED not in inner:
            yield from _leaves(inner, f"{path}/")
        else:
            yield path, inner


def _tensor(leaf: Value, where: str, limits: Limits) -> Tensor | None:
    """Return the tensor of a leaf; None if it is none."""
    if isinstance(leaf, dict):
        return _join_chunks(leaf, where, limits)
    if not isinstance(leaf, Extension) or leaf.code not in (ARRAY, SCALAR):
        return None
    parts = parse(leaf.data, limits)
    shape, name, data = parts if isinstance(parts, list) and len(parts) == 3 else (None,) * 3
    if not isinstance(data, Span):
        raise CorruptError("an array has no shape, dtype and bytes", where=where)
    return Tensor.contiguous(_dtype(name, where), _sizes(shape, where), data, origin=where)


def _dtype(name: Value, where: str) -> DType:
    text = name.read().decode("ascii", "replace") if isinstance(name, Span) else name
    dtype = DTYPES.get(text) if isinstance(text, str) else None
    if dtype is None:
        raise UnsupportedError(f"arrays of dtype {text!r:.40}", where=where)
    return dtype


def _sizes(shape: Value, where: str) -> tuple[int, ...]:
    if not isinstance(shape, list) or not all(type(n) is int and n >= 0 for n in shape):
        raise CorruptError("the shape of an array is no list of sizes", where=where)
    return tuple(cast("list[int]", shape))


def _join_chunks(tree: dict[str, Value], where: str, limits: Limits) -> Tensor:
    """Return an array that is stored in flat chunks."""
    shape, stored = _numbered(tree.get("shape"), where), _numbered(tree.get("chunks"), where)
    chunks = [_tensor(chunk, where, limits) for chunk in stored]
    spans, dtypes = [], set()
    for chunk in chunks:
        if chunk is None or not isinstance(chunk.data, Strided):
            raise CorruptError("a chunk of an array is no array", where=where)
        spans.append(chunk.data.span)
        dtypes.add(chunk.dtype)
    if len(dtypes) != 1:
        raise CorruptError("the chunks of an array have several dtypes, or none", where=where)
    (dtype,) = dtypes
    made = Tensor.computed(dtype, _sizes(shape, where), lambda: spans, origin=where)
    if made.nbytes != sum(span.length for span in spans):
        raise CorruptError(f"the chunks of an array do not have shape {shape}", where=where)
    return made


def _numbered(tree: Value, where: str) -> list[Value]:
    """Return a sequence that is stored as a map of its indices."""
    if not isinstance(tree, dict) or {*tree} != {str(i) for i in range(len(tree))}:
        raise CorruptError("a sequence is no map of indices", where=where)
    return [tree[str(i)] for i in range(len(tree))]
