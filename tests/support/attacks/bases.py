"""Sound artifacts to damage: all fixtures, and a few made here for layouts that those lack."""

import io
import json
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np
from attacks.pickles import state_dict, torch_stream, torch_tar, torch_zip, weights
from repository import FIXTURES
from safetensors.numpy import save

PACKED = (
    "doctor",
    "torch_moved",
    "torch_ops",
    "torch_programs",
    "verify_tensorflow",
    "verify_torch",
)
LARGEST = 200_000  # bytes of a file worth damaging


@dataclass(frozen=True)
class Base:
    """A sound artifact: its files, what the user points at, and which of the files to damage."""

    name: str
    files: Mapping[str, bytes]
    target: str
    damage: tuple[str, ...]


def one_file(name: str, filename: str, data: bytes) -> Base:
    return Base(name, {filename: data}, filename, (filename,))


def fixtures() -> Iterator[Base]:
    """Yield every artifact of fixtures/, but for those that are packed, and many of a kind."""
    parts = {FIXTURES / "keras_layers" / "rows"}
    parts |= {p.parent for p in FIXTURES.glob("*/*/*.expected.*")}  # HDF5's own: no models
    for family in sorted(p for p in FIXTURES.iterdir() if p.is_dir()):
        if family.name.startswith("tf_") or family.name in PACKED:
            continue  # graphs: test_tf_lowering_attacks damages those of TensorFlow
        for path in sorted(family.iterdir()):
            if ".expected" in path.name or path.suffix in (".py", ".md", ".npz", ".txt"):
                continue
            if path.suffix == ".zip" and family.name in (
                "keras_layers",
                "pretrained",
                "tensorflow",
            ):
                continue
            if path == FIXTURES / "fsdp" / "local":
                continue  # refused as it is: flat parameters record no names
            is_index = path.name.endswith((".index.json", ".weights.json"))
            if path in parts or (path.suffix == ".json" and not is_index):
                continue
            name = f"{family.name}/{path.name}"
            if path.is_dir():
                yield from _folder(name, path)
            elif is_index:  # its shards are beside it
                text = path.read_bytes()
                shards = {
                    p.name: p.read_bytes() for p in family.iterdir() if p.name.encode() in text
                }
                yield Base(name, {path.name: text, **shards}, path.name, (path.name,))
            elif path.stat().st_size <= LARGEST:
                yield one_file(name, path.name, path.read_bytes())


def _folder(name: str, path: Path) -> Iterator[Base]:
    files = {p.relative_to(path).as_posix(): p.read_bytes() for p in path.rglob("*") if p.is_file()}
    damage = tuple(
        sorted(n for n, d in files.items() if 0 < len(d) <= LARGEST and ".data-0000" not in n)
    )
    if not damage or sum(map(len, files.values())) > 4 * LARGEST:
        return
    indices = [n for n in files if n.endswith(".index") and "/" not in n]
    target = indices[0].removesuffix(".index") if indices else "."
    yield Base(name, files, target, damage)


def generated() -> Iterator[Base]:
    """Yield the artifacts made here."""
    arrays = weights()
    yield one_file("safetensors", "m.safetensors", save(arrays, {"format": "pt", "note": "n"}))
    shards = {"a.safetensors": save({"a": arrays["fc.bias"]}), "b.safetensors": save(arrays)}
    index = {"metadata": {"total_size": 96}, "weight_map": {"a": "a.safetensors"}}
    index["weight_map"].update(dict.fromkeys(arrays, "b.safetensors"))
    shards["model.safetensors.index.json"] = json.dumps(index).encode()
    yield Base("sharded safetensors", shards, ".", tuple(shards))
    pickle = state_dict(arrays, {"epoch": b"K\x05", "best": b"G?\xf0\0\0\0\0\0\0"})
    yield one_file("torch zip", "m.pt", torch_zip(pickle))
    yield one_file("torch deflated", "m.pt", torch_zip(pickle, compression=zipfile.ZIP_DEFLATED))
    yield one_file("torch stream", "m.pth", torch_stream(pickle))
    yield one_file("torch tar", "m.pth", torch_tar(arrays))
    yield one_file("keras h5 old", "m.h5", keras_h5())
    yield one_file("keras h5 latest", "m.h5", keras_h5(libver="latest"))
    yield one_file("keras h5 v108", "m.h5", keras_h5(libver="v108", track_order=True))
    yield one_file("keras h5 chunked", "m.h5", keras_h5(chunked=True))
    yield one_file("keras h5 chunked latest", "m.h5", keras_h5(chunked=True, libver="latest"))
    yield one_file("weights h5", "m.weights.h5", weights_h5())
    yield one_file("weights h5 user block", "m.weights.h5", weights_h5(userblock_size=512))
    yield one_file("keras archive", "m.keras", keras_archive())
    yield from _onnx()


def keras_h5(
    *, chunked: bool = False, libver: str = "earliest", track_order: bool = False
) -> bytes:
    """Return a whole-model file as Keras 2 writes it, in the layout asked for."""
    rng = np.random.default_rng(5)
    layers = {f"dense_{i}": ("kernel", "bias") for i in range(3)}
    stream = io.BytesIO()
    with h5py.File(stream, "w", libver=libver, track_order=track_order) as file:
        config = {"class_name": "Sequential", "config": {"name": "m", "layers": []}}
        file.attrs["keras_version"], file.attrs["backend"] = b"2.4.0", b"tensorflow"
        file.attrs["model_config"] = json.dumps(config).encode()
        root = file.create_group("model_weights")
        root.attrs["layer_names"] = [n.encode() for n in layers]
        for layer, names in layers.items():
            group = root.create_group(layer)
            group.attrs["weight_names"] = [f"{layer}/{n}:0".encode() for n in names]
            for j, n in enumerate(names):
                data = rng.standard_normal((24, 6) if j == 0 else (6,)).astype("f4")
                how: dict[str, object] = {}
                if chunked:
                    how = {"chunks": tuple(max(1, s // 2) for s in data.shape)}
                    how |= {"compression": "gzip", "shuffle": True, "fletcher32": j == 0}
                group.create_dataset(f"{layer}/{n}:0", data=data, **how)
        optimizer = file.create_group("optimizer_weights")
        optimizer.attrs["weight_names"] = [b"iter:0"]
        optimizer.create_dataset("iter:0", data=np.int64(7))
    return stream.getvalue()


def weights_h5(*, userblock_size: int = 0) -> bytes:
    """Return a ``.weights.h5`` as Keras 3 writes it, with what HDF5 has beside plain datasets."""
    rng = np.random.default_rng(6)
    stream = io.BytesIO()
    with h5py.File(stream, "w", userblock_size=userblock_size) as file:
        group = file.create_group("layers/dense/vars")
        for i, kind in enumerate(("f4", "f2", "i8", "u1")):
            group.create_dataset(str(i), data=rng.integers(0, 50, (3, 5)).astype(kind))
        file["layers/dense"].attrs["name"] = "dense"
        file["layers/dense"].attrs["words"] = np.array(["a", "b"], h5py.string_dtype())
        grown = group.create_dataset("4", (4, 4), maxshape=(None, None), chunks=(2, 2), dtype="f4")
        grown[:] = rng.standard_normal((4, 4))
        compact = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        compact.set_layout(h5py.h5d.COMPACT)
        space = h5py.h5s.create_simple((3,))
        h5py.h5d.create(group.id, b"5", h5py.h5t.IEEE_F32LE, space, compact)
        file["alias"] = h5py.SoftLink("/layers/dense/vars/0")
        file["twin"] = file["layers/dense/vars/1"]
    return stream.getvalue()


def keras_archive() -> bytes:
    """Return a ``.keras`` file."""
    layer = {"class_name": "Dense", "config": {"name": "dense", "units": 5}}
    config = {"module": "keras", "class_name": "Sequential", "config": {"layers": [layer]}}
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("metadata.json", '{"keras_version": "3.0.0", "date_saved": "x"}')
        archive.writestr("config.json", json.dumps(config))
        archive.writestr("model.weights.h5", weights_h5())
        archive.writestr("assets/words.txt", "a\nb\n")
    return stream.getvalue()


def _onnx() -> Iterator[Base]:
    try:
        import onnx
        from onnx import TensorProto, helper, numpy_helper
    except ImportError:
        return
    rng = np.random.default_rng(7)
    w = rng.standard_normal((3, 4)).astype("f4")
    typed = helper.make_tensor("typed", TensorProto.FLOAT16, [4], [1.0, 2.0, 3.0, 4.0])
    words = helper.make_tensor("words", TensorProto.STRING, [2], [b"a", b"bc"])
    sparse = helper.make_sparse_tensor(
        numpy_helper.from_array(w[0, :2], "sparse"),
        numpy_helper.from_array(np.int64([1, 5]), "i"),
        [9],
    )
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["y"]),
        helper.make_node("Constant", [], ["c"], value_ints=[1, 2, 3]),
        helper.make_node("Constant", [], ["d"], value=numpy_helper.from_array(w)),
    ]
    graph = helper.make_graph(
        nodes, "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 4])],
        [numpy_helper.from_array(w, "w"), typed, words], sparse_initializer=[sparse],
    )  # fmt: skip
    model = helper.make_model(graph, producer_name="attacks")
    yield one_file("onnx", "m.onnx", model.SerializeToString())
    outside = onnx.TensorProto()
    outside.CopyFrom(model.graph.initializer[0])
    outside.ClearField("raw_data")
    outside.data_location = TensorProto.EXTERNAL
    for key, entry in (("location", "m.bin"), ("offset", "8"), ("length", "48")):
        outside.external_data.add(key=key, value=entry)
    model.graph.initializer[0].CopyFrom(outside)
    files = {"m.onnx": model.SerializeToString(), "m.bin": b"\0" * 8 + w.tobytes()}
    yield Base("onnx external", files, "m.onnx", ("m.onnx",))


def _fixture(path: str) -> Callable[[], Base]:
    def load() -> Base:
        return next(b for b in fixtures() if b.name == path)

    return load


# One folder of each kind.
BASES_BY_KIND: Mapping[str, Callable[[], Base]] = {
    "sharded safetensors": lambda: next(b for b in generated() if b.name == "sharded safetensors"),
    "SavedModel": _fixture("tensorflow/module_tf2"),
    "checkpoint": _fixture("tensorflow/v2_named"),
    "external data": _fixture("onnx/external_many"),
}
