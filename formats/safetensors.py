"""safetensors: one file, or shards with an index, as Hugging Face writes them.

A file is a length (u64), a JSON header, and a body of raw tensors. Tied tensors are
stored once; the other names are in the header's metadata, as ``safetensors.torch.save_model``
writes them. What safetensors cannot express is there as well, under keys that begin with
``convert.``.

Spec: https://github.com/huggingface/safetensors/blob/v0.8.0/README.md#format
"""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeGuard

from formats import hugging_face
from formats.artifact import Artifact
from formats.containers.jsontext import parse
from formats.core.bundle import JSON, Bundle, Encoding, LeftOut, Metadata
from formats.core.plurals import count
from formats.core.storage import File, Span
from formats.core.weights import DTYPES, Computed, Tensor
from formats.errors import CorruptError, LimitError
from formats.limits import Limits

INDEX_SUFFIX = ".safetensors.index.json"
SUFFIX = ".safetensors"

BY_CODE = {d.code: d for d in DTYPES.values() if d.code is not None}
# A dtype that safetensors lacks is stored as another one, with the parts of an element last.
STAND_IN = {
    "complex32": ("float16", 2),
    "complex128": ("float64", 2),
    "float8_e4m3b11fnuz": ("uint8", 1),
}


def sniff(artifact: Artifact) -> str | None:
    """Recognise a file by its header, a folder by its index or its files."""
    if artifact.is_folder:
        index = [n for n in artifact.names if n.endswith(INDEX_SUFFIX)]
        files = [n for n in artifact.names if n.endswith(SUFFIX)]
        if index:
            return f"folder with {index[0]}"
        return f"folder with {count('.safetensors file', len(files))}" if files else None
    head = artifact.head
    if artifact.is_file and artifact.name.endswith(INDEX_SUFFIX) and head.lstrip()[:1] == b"{":
        return "index of shards"
    if len(head) < 10 or head[8:9] != b"{":
        return None
    (length,) = struct.unpack("<Q", head[:8])
    if not 2 <= length <= artifact.limits.max_header_bytes:
        return None
    if head[9:10] not in (b'"', b"}", b" ", b"\n", b"\t"):
        return None
    return f"safetensors header of {length} bytes"


def read(artifact: Artifact) -> Bundle:
    """Read one file, the shards of a folder, or the shards that an index names."""
    if artifact.is_folder:
        return _read_folder(artifact)
    if artifact.name.endswith(INDEX_SUFFIX):
        return read_index(artifact, File(artifact.path))
    header = read_header(artifact.span, artifact.limits)
    return _bundle([header], variant="one file")


class Header(NamedTuple):
    """The parsed header of one file."""

    tensors: Mapping[str, Tensor]
    metadata: Mapping[str, str]


def read_header(span: Span, limits: Limits) -> Header:
    """Parse the header of one file.

    Raises:
        CorruptError: It is no header, or its tensors overlap, leave holes or end elsewhere.
        LimitError: It is too long.
    """
    if span.length < 8:
        raise CorruptError("is too short for a safetensors file", where=span.name)
    (length,) = struct.unpack("<Q", span.read(0, 8))
    if length > limits.max_header_bytes:
        raise LimitError(
            f"header of {length} bytes",
            expected=f"at most {limits.max_header_bytes}",
            where=span.name,
        )
    text = span.sub(8, length).read()
    entries = parse(text, where=span.name, limit=limits.max_header_bytes)
    if not isinstance(entries, dict):
        raise CorruptError("the safetensors header is no JSON object", where=span.name)
    metadata = entries.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise CorruptError("__metadata__ is no map of strings", where=span.name)
    body = span.sub(8 + length, span.length - 8 - length)
    tensors = {name: _tensor(name, entry, body) for name, entry in entries.items()}
    _check_layout(tensors, body)
    return Header(tensors, {k: str(v) for k, v in metadata.items()})


def _tensor(name: str, entry: JSON, body: Span) -> Tensor:
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise _wrong(name, body, "has no dtype, shape and data_offsets")
    code, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    dtype = BY_CODE.get(code) if isinstance(code, str) else None
    if dtype is None:
        raise _wrong(name, body, f"unknown dtype {code!r}", ", ".join(BY_CODE))
    if not _are_sizes(shape) or not _are_sizes(offsets) or len(offsets) != 2:
        raise _wrong(name, body, "shape or data_offsets are no lists of sizes")
    start, end = offsets
    if start > end:
        raise _wrong(name, body, f"data_offsets [{start}, {end}] run backwards")
    return Tensor.contiguous(dtype, shape, body.sub(start, end - start), origin=name)


def _wrong(name: str, body: Span, found: str, expected: str | None = None) -> CorruptError:
    return CorruptError(found, expected=expected, where=f"{body.name}: tensor {name!r}")


def _are_sizes(value: JSON) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(type(n) is int and 0 <= n < 1 << 63 for n in value)


def _check_layout(tensors: Mapping[str, Tensor], body: Span) -> None:
    """The body must be tensors back to back, which also rules out hidden bytes."""
    spans = [t.data.span for t in tensors.values() if not isinstance(t.data, Computed)]
    position = body.offset
    for span in sorted(spans, key=lambda s: (s.offset, s.length)):
        if span.offset != position:
            raise CorruptError(
                "tensors overlap or leave a hole", where=body.name, offset=span.offset
            )
        position += span.length
    if position != body.offset + body.length:
        raise CorruptError(
            f"{body.offset + body.length - position} bytes belong to no tensor",
            where=body.name,
            offset=position,
        )


def _read_folder(artifact: Artifact) -> Bundle:
    index = [n for n in artifact.names if n.endswith(INDEX_SUFFIX)]
    if len(index) > 1:
        raise CorruptError(f"has several indices: {', '.join(index)}", where=artifact.path)
    if index:
        return read_index(artifact, artifact.member(index[0]))
    names = [n for n in artifact.names if n.endswith(SUFFIX)]
    return read_files(artifact, names, variant=f"folder of {count('file', len(names))}")


def read_index(artifact: Artifact, file: File) -> Bundle:
    """Read the shards that an index names.

    Args:
        artifact: Their folder, or the index.
        file: The index.

    Raises:
        CorruptError: The index and the shards do not fit.
        LimitError: The index is too long.
        SafetyError: It names a file outside its folder.
    """
    limit = artifact.limits.max_header_bytes
    span = Span.whole(file)
    if span.length > limit:
        raise LimitError(
            f"index of {span.length} bytes", expected=f"at most {limit}", where=file.name
        )
    index = parse(span.read(), where=file.name, limit=limit)
    file.close()
    weight_map = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(weight_map, dict) or not all(isinstance(v, str) for v in weight_map.values()):
        raise CorruptError("has no weight_map", where=file.name)
    names = list(dict.fromkeys(str(v) for v in weight_map.values()))
    if len(names) > artifact.limits.max_files:
        raise LimitError(f"index of {len(names)} shards", where=file.name)
    metadata = index.get("metadata") if isinstance(index, dict) else None
    recorded = metadata if isinstance(metadata, dict) else {}
    extra = {k: v for k, v in recorded.items() if isinstance(v, str)}
    bundle = read_files(
        artifact, names, variant=f"{count('shard', len(names))} with an index", extra=extra
    )
    missing = sorted(set(weight_map) - set(bundle.weights))
    if missing:
        tensors = count("tensor", len(missing))
        raise CorruptError(
            f"the index names {tensors} that no shard holds, first {missing[0]!r}",
            where=file.name,
        )
    return bundle


def read_files(
    artifact: Artifact,
    names: Sequence[str],
    *,
    variant: str,
    extra: Mapping[str, str] | None = None,
) -> Bundle:
    """Read these files of a folder as one model.

    Args:
        artifact: The folder, or the index in it.
        names: Relative names of the files.
        variant: What the metadata will call it.
        extra: Metadata that is outside the files.

    Raises:
        CorruptError: A file is damaged, or two hold a tensor of one name.
        SafetyError: A name leads out of the folder.
    """
    headers = []
    for name in names:
        file = artifact.member(name)
        headers.append(read_header(Span.whole(file), artifact.limits))
        file.close()
    bundle = _bundle(headers, variant=variant, extra=extra)
    beside = artifact.names if artifact.is_folder else ()
    topology = hugging_face.read_topology(artifact)
    assets = hugging_face.read_assets(artifact, names) if topology is not None else {}
    left_out = tuple(
        LeftOut(n, "a file beside the weights, not part of them")
        for n in beside
        if n not in names and n not in assets and not n.endswith(INDEX_SUFFIX)
    )
    metadata = replace(bundle.metadata, left_out=left_out)
    return replace(bundle, metadata=metadata, topology=topology, assets=assets)


def _bundle(
    headers: Sequence[Header], *, variant: str, extra: Mapping[str, str] | None = None
) -> Bundle:
    weights: dict[str, Tensor] = {}
    notes: dict[str, str] = dict(extra or {})
    for header in headers:
        for name, tensor in header.tensors.items():
            if name in weights:
                raise CorruptError(f"tensor {name!r} is in two shards")
            weights[name] = tensor
        notes.update(header.metadata)
    encodings: dict[str, Encoding] = {}
    user: dict[str, JSON] = {}
    recorded: dict[str, str] = {}
    for key, value in notes.items():
        if key == "convert.dtypes":
            _restore_dtypes(weights, value)
        elif key == "convert.encodings":
            encodings = _restore_encodings(value)
        elif key == "format":
            recorded["format"] = value
        elif value in weights and key not in weights:
            weights[key] = weights[value]
        else:
            user[key] = value
    metadata = Metadata(format="safetensors", variant=variant, recorded=recorded, user=user)
    return Bundle(metadata=metadata, weights=weights, encodings=encodings)


def _restore_dtypes(weights: dict[str, Tensor], text: str) -> None:
    """Undo `STAND_IN`: metadata says which tensors are logically of another dtype and shape."""
    table = parse(text, where="convert.dtypes", limit=len(text))
    for name, entry in table.items() if isinstance(table, dict) else ():
        stored = weights.get(name)
        match entry:
            case [str(dtype), list(shape)] if (
                stored is not None and dtype in DTYPES and _are_sizes(shape)
            ):
                extent = next(iter(stored.pieces()), None)
                if isinstance(extent, Span):
                    weights[name] = Tensor.contiguous(DTYPES[dtype], shape, extent, origin=name)
                elif not stored.size:
                    weights[name] = Tensor.inline(DTYPES[dtype], shape, b"", origin=name)
            case _:
                raise CorruptError(f"convert.dtypes does not fit tensor {name!r}")


def _restore_encodings(text: str) -> dict[str, Encoding]:
    table = parse(text, where="convert.encodings", limit=len(text))
    result = {}
    for name, entry in table.items() if isinstance(table, dict) else ():
        match entry:
            case {
                "kind": str(kind),
                "dtype": str(dtype),
                "shape": list(shape),
                "parts": dict(parts),
                "parameters": dict(parameters),
            } if _are_sizes(shape):
                roles = {k: str(v) for k, v in parts.items()}
                result[name] = Encoding(kind, dtype, tuple(shape), roles, parameters)
            case _:
                raise CorruptError(f"convert.encodings does not fit {name!r}")
    return result
