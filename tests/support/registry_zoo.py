"""A registry of many small artifacts of all formats, each with weights of its own, some damaged.

New ones are written by safetensors and h5py; of all other formats there is a fixture, and a copy of
it gets other numbers where its weights lie, with the checksums that cover them. `make` says what
must become of each: the exit code of its conversion.
"""

import io
import json
import random
import re
import struct
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import cycle, groupby, zip_longest
from pathlib import Path

import h5py
import numpy as np
from repository import FIXTURES

import converter
from converter.registries.catalog import open_registry
from converter.registries.entry import Entry
from converter.registries.filters import Filters
from formats import catalog
from formats.artifact import Artifact
from formats.core import checksums
from formats.core.storage import File, Span
from formats.core.weights import Strided
from formats.limits import DEFAULT
from formats.tensorflow.tensor_bundle import TensorBundle

FOLDERS = (
    "deepspeed",
    "torch",
    "keras",
    "onnx",
    "tensorflow",
    "torch_moved",
    "verify_torch",
    "torch_devices",
    "verify_tensorflow",
    "components",
    "fsdp",
    "megatron",
    "pretrained",
)
# Of these nothing can be made: no weights in them, or none that lie in the file as they are. Where
# the graph of a hub's module is damaged, nothing says that its folder is one.
UNUSED = (
    "hdf5/", "scripted-", "deflated", "bare", ".pbtxt", "text_savedmodel", "v1_", "zero1", "zero3",
    "hub", "fsdp/local", "v2_sharded",
)  # fmt: skip
SEVERAL = ("joined", "manager_checkpoint")  # folders of more than one
LARGEST = 60_000  # bytes of a template


@dataclass(frozen=True, slots=True)
class Template:
    """A fixture, and where its weights lie.

    Attributes:
        format: Row id of the catalog.
        root: The file or folder to copy.
        opens: What opens it, relative to the copy; "" for the copy itself.
        files: Content by name relative to the root; "" for a file.
        places: Name, offset, length and dtype of each tensor's bytes.
        checks: Name, offset, length and CRC-32 of each member of an archive that holds weights.
    """

    format: str
    root: Path
    opens: str
    files: dict[str, bytes]
    places: tuple[tuple[str, int, int, str], ...]
    checks: tuple[tuple[str, int, int, int], ...]


@lru_cache(maxsize=1)
def templates() -> tuple[Template, ...]:
    """Return all fixtures that copies with other weights can be made of."""
    found = []
    for folder in FOLDERS:
        for one in open_registry(str(FIXTURES / folder), Filters()).find():
            if isinstance(one, Entry) and not any(u in one.source for u in UNUSED + SEVERAL):
                made = _template(one)
                if made is not None:
                    found.append(made)
    return tuple(found)


def _template(one: Entry) -> Template | None:
    path = Path(one.source)
    alone = (
        path.is_file() and path.suffix != ".json" and not path.parent.name.startswith("external")
    )
    root = path if alone or path.is_dir() else path.parent
    files = {"": path.read_bytes()} if root.is_file() else {
        p.relative_to(root).as_posix(): p.read_bytes() for p in root.rglob("*") if p.is_file()
    }  # fmt: skip
    if path.suffix == ".json":  # Keras' shards lie among other fixtures
        files = {n: d for n, d in files.items() if n.startswith(path.name.partition(".")[0])}
    if sum(map(len, files.values())) > LARGEST:
        return None
    artifact = Artifact(path)
    places = set()
    for tensor in catalog.read(artifact).weights.values():
        data = tensor.data
        plain = tensor.dtype.name in ("float16", "float32", "float64") and tensor.size
        if plain and isinstance(data, Strided) and isinstance(data.span.storage, File):
            file = data.span.storage.path
            name = "" if root.is_file() else file.relative_to(root).as_posix()
            places.add((name, data.span.offset, data.span.length, tensor.dtype.name))
    checks = tuple(
        ("" if root.is_file() else file.path.relative_to(root).as_posix(), *run, known.value)
        for file in artifact.opened.values()
        for run, known in file.checksums.items()
        if known.algorithm == "crc32"
    )
    artifact.close()
    opens = "" if path == root else path.relative_to(root).as_posix()
    return (
        Template(one.format, root, opens, files, tuple(sorted(places)), checks) if places else None
    )


def copied(template: Template, target: Path, rng: np.random.Generator) -> Path:
    """Write a copy of a template with other weights, and return what opens it."""
    files = {name: bytearray(data) for name, data in template.files.items()}
    for name, offset, length, dtype in template.places:
        size = np.dtype(dtype).itemsize
        values = rng.standard_normal(length // size).astype(dtype).tobytes()
        files[name][offset : offset + len(values)] = values
    for name, data in files.items():
        before = template.files[name]
        if data == before:
            continue
        _mend_zip(data, [check for file, *check in template.checks if file == name])
        if (index := name.rpartition(".data-")[0] + ".index") in files:
            _mend_bundle(files[index], template.files[index], before, data)
    for name, data in files.items():
        path = target / name if name else target
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return target / template.opens if template.opens else target


def _mend_zip(data: bytearray, checks: list[list[int]]) -> None:
    """Correct the CRCs of stored members that are others now, an archive before what holds it.

    Members of equal content have equal CRCs: the headers of each kind are in the order of members.
    """
    for length in sorted({length for _, length, _ in checks}):
        for old in {crc for _, size, crc in checks if size == length}:
            offsets = sorted(at for at, size, crc in checks if (size, crc) == (length, old))
            new = [zlib.crc32(data[at : at + length]) for at in offsets]
            for magic, before in ((b"PK\3\4", 14), (b"PK\1\2", 16), (b"PK\7\x08", 4)):
                found = [
                    m.start() for m in re.finditer(re.escape(struct.pack("<L", old)), data)
                    if data[m.start() - before :].startswith(magic)
                ]  # fmt: skip
                for at, crc in zip(found, new, strict=False):
                    data[at : at + 4] = struct.pack("<L", crc)


def _mend_bundle(index: bytearray, was: bytes, before: bytes, data: bytes) -> None:
    """Correct the checksums that a checkpoint's index has of its tensors, and its own."""
    tensors, size = _checksums(was, before)
    at = 0
    for crc, offset, length in tensors:  # in the order of the index: equal ones have equal CRCs
        new = struct.pack("<L", _masked(data[offset : offset + length]))
        at = index.index(b"\x35" + struct.pack("<L", crc), at) + 5
        index[at - 4 : at] = new
    index[size + 1 : size + 5] = struct.pack("<L", _masked(index[: size + 1]))


@lru_cache
def _checksums(index: bytes, data: bytes) -> tuple[list[tuple[int, int, int]], int]:
    """Return checksum, offset and length of each tensor, and the size of the index's first block.

    Small indices have one block of data, which begins the file, and which one byte of compression
    and its checksum follow.
    """
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder, name) for name in ("index", "data")]
        for path, content in zip(paths, (index, data), strict=True):
            path.write_bytes(content)
        bundle = TensorBundle(Span.whole(File(paths[0])), lambda _: File(paths[1]), DEFAULT)
        found = [(e, bundle.span(e)) for e in bundle.entries.values() if e.crc]
        tensors = [(e.crc, span.offset, span.length) for e, span in found]
    size = next(
        n for n in range(8, len(index) - 5)
        if struct.unpack("<L", index[n + 1 : n + 5])[0] == _masked(index[: n + 1])
    )  # fmt: skip
    return tensors, size


def _masked(data: bytes) -> int:
    crc = checksums.crc32c(bytes(data))
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


# -- new ones --------------------------------------------------------------------------------------


def safetensors(path: Path, rng: np.random.Generator) -> Path:
    """Write a file of one to six tensors."""
    header, body = {}, b""
    for i in range(int(rng.integers(1, 7))):
        shape = [int(n) for n in rng.integers(1, 24, int(rng.integers(1, 3)))]
        data = rng.standard_normal(shape).astype("<f4").tobytes()
        end = len(body) + len(data)
        header[f"layer{i}.weight"] = {
            "dtype": "F32",
            "shape": shape,
            "data_offsets": [len(body), end],
        }
        body += data
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)
    return path


def keras_weights(path: Path, rng: np.random.Generator) -> Path:
    """Write the weights of a few Dense layers as Keras 2 did."""
    buffer = io.BytesIO()
    with h5py.File(buffer, "w") as file:
        layers = [f"dense_{i}" for i in range(int(rng.integers(1, 4)))]
        file.attrs["layer_names"] = [n.encode() for n in layers]
        file.attrs["backend"], file.attrs["keras_version"] = b"tensorflow", b"2.11.0"
        for layer in layers:
            group = file.create_group(layer)
            names = [f"{layer}/kernel:0", f"{layer}/bias:0"]
            group.attrs["weight_names"] = [n.encode() for n in names]
            rows, columns = (int(n) for n in rng.integers(2, 20, 2))
            group[names[0]] = rng.standard_normal((rows, columns), "f4")
            group[names[1]] = rng.standard_normal(columns, "f4")
    path.write_bytes(buffer.getvalue())
    return path


def bundle(path: Path, rng: np.random.Generator) -> Path:
    """Write one of our own."""
    source = safetensors(path.with_name("source"), rng)
    converter.convert(source, out=path)
    source.unlink()
    return path


# -- damaged ones ----------------------------------------------------------------------------------

DAMAGES = ("cut", "zeros", "empty", "flipped")
# Where a bit decides: of a length, a magic number, a directory.
STRUCTURE = {
    ".safetensors": 3, ".h5": 1, ".keras": -22, ".pt": -22, ".pth": -22, ".pt2": -22, ".ptl": -22,
    ".pb": 2, ".index": -1,
}  # fmt: skip


def damage(path: Path, how: str) -> Path:
    """Damage what opens an artifact, or the largest file of it."""
    files = [p for p in path.rglob("*") if p.is_file()] if path.is_dir() else [path]
    if not path.exists():  # a prefix
        files = sorted(path.parent.glob(f"{path.name}.*"))
    named = [p for p in files if p.suffix in STRUCTURE]
    file = max(named or files, key=lambda p: p.stat().st_size)
    data = bytearray(file.read_bytes())
    at = STRUCTURE.get(file.suffix, 0)
    if how == "flipped" and at:
        data[at if at > 0 or data[:2] == b"PK" else 3] ^= 0xFF  # of a stream, its magic number
    elif how == "zeros":
        data[:] = bytes(len(data))
    elif how == "empty":
        data.clear()
    else:
        del data[len(data) // 3 :]
    file.write_bytes(data)
    return path


def refused(folder: Path, i: int, rng: np.random.Generator) -> tuple[Path, int]:
    """Write one that is whole, and cannot or must not be converted."""
    kind = i // 100 % 4
    if kind == 0:
        path = folder / f"text{i}.onnx"
        path.write_text('{"irVersion": "8", "graph": {}}')
        return path, 4
    if kind == 1:
        path = folder / f"elsewhere{i}.safetensors.index.json"
        path.write_text(json.dumps({"weight_map": {"w": "../../../etc/passwd"}}))
        return path, 5
    if kind == 2:
        path = folder / f"pointer{i}.h5"
        path.write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
        return path, 3
    path = safetensors(folder / f"huge{i}.safetensors", rng)
    path.write_bytes(struct.pack("<Q", 1 << 60) + path.read_bytes()[8:])
    return path, 3


# -- the registry ----------------------------------------------------------------------------------


def make(folder: Path, count: int, seed: int = 0) -> dict[str, int]:
    """Make a registry.

    Args:
        folder: Which is made.
        count: Of artifacts; one in twenty is damaged.
        seed: Of all numbers.

    Returns:
        What opens each artifact → the exit code that its conversion must have.
    """
    return {str(path): code for path, code in _made(folder, count, seed)}


def _in_turn(found: Sequence[Template]) -> Iterator[Template]:
    """Yield one template of each format, then the next of each, so that few have all formats."""
    by_format = [[*same] for _, same in groupby(found, key=lambda t: t.format)]
    for some in zip_longest(*by_format):
        yield from (template for template in some if template is not None)


def _made(folder: Path, count: int, seed: int) -> Iterator[tuple[Path, int]]:
    rng, pick = np.random.default_rng(seed), random.Random(seed)
    order = cycle(_in_turn(sorted(templates(), key=lambda t: (t.format, t.root.name))))
    for i in range(count):
        team = folder / f"team-{i % max(count // 60, 1):03}"
        if not team.exists():
            team.mkdir(parents=True)
            (team / "README.md").write_text("# Models of this team\n")
        if i % 20 == 19 and i % 100 == 99:
            yield refused(team, i, rng)
            continue
        if i % 3 == 0:
            path = safetensors(team / f"model{i}.safetensors", rng)
        elif i % 6 == 1:
            path = keras_weights(team / f"weights{i}.h5", rng)
        elif i % 150 == 2:
            path = bundle(team / f"bundle{i}.portable", rng)
        else:
            template = next(order)
            path = copied(template, team / f"{i}-{template.root.name}", rng)
        if i % 20 == 19:
            yield damage(path, pick.choice(DAMAGES)), 3
        elif i % 40 == 7 and path.is_file():  # content decides, whatever it is called
            yield path.rename(path.with_name(f"{path.name}.v1")), 0
        else:
            yield path, 0
