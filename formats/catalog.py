"""THE table of formats, in sniffing order, and `detect`, which decides by content.

A suffix only puts its formats at the head of the queue; it never decides.
"""

from collections.abc import Callable
from importlib import import_module
from typing import NamedTuple, cast

from formats.artifact import Artifact
from formats.core.bundle import Bundle
from formats.errors import LimitError, UsageError


class Format(NamedTuple):
    """One row: a module of this package with ``sniff(artifact)`` and ``read(artifact)``.

    Attributes:
        id: What ``format=`` and manifests call it.
        module: Name of the module in `formats`, imported when first needed.
        suffixes: Suffixes that make it worth trying first.
        reads: The variants it reads, as ``convert formats`` prints them.
        writes: What it writes, or "".
    """

    id: str
    module: str
    suffixes: tuple[str, ...]
    reads: str
    writes: str = ""

    def sniff(self, artifact: Artifact) -> str | None:
        """Return the evidence that the artifact is of this format, or None."""
        sniff = cast(Callable[[Artifact], str | None], self._module("sniff"))
        return sniff(artifact)

    def read(self, artifact: Artifact) -> Bundle:
        """Read the artifact. Weights stay where they are until they are asked for.

        Raises:
            SourceError: The artifact is damaged or over a limit.
            UnsupportedError: It is valid, and holds something that we cannot read yet.
        """
        read = cast(Callable[[Artifact], Bundle], self._module("read"))
        return read(artifact)

    def _module(self, name: str) -> object:
        return getattr(import_module(f"formats.{self.module}"), name)


# fmt: off
FORMATS = (
    Format("portable",        "portable",          (".portable",),
           "the bundle that convert writes", "manifest.json, model.safetensors"),
    Format("components",      "components",        (),
           "folders of diffusers and sentence-transformers, their tensors as component/name"),
    Format("safetensors",     "safetensors",       (".safetensors",),
           "one file; shards with an index", "one file; shards with an index"),
    Format("keras-h5",        "keras.h5",          (".h5", ".hdf5", ".keras", ".hdf"),
           "whole models and weights of Keras 1, 2, tf.keras and 3; .weights.h5, also in shards; "
           "other HDF5 files, dataset by dataset"),
    Format("keras",           "keras.v3",          (".keras",),
           ".keras archives, folders with their content"),
    Format("torchscript",     "torch.script",      (".pt", ".pth", ".jit", ".ts", ".ptl"),
           "zip archives with code/; model.json archives of torch 1.0-1.1"),
    Format("torch-export",    "torch.export",      (".pt2",),
           ".pt2 archives of torch.export"),
    Format("torch-ranks",     "torch.rank_files",  (".pt", ".pth", ".bin", ".ckpt"),
           "a file of torch.save for each rank (FSDP, DTensor), their parts joined"),
    Format("torch",           "torch.saved",       (".pt", ".pth", ".ckpt", ".bin", ".th",
           ".tar", ".pkl"),
           "zip archives; streams before 1.6; tar before 0.1.10"),
    Format("torch-package",   "torch.package",     (".pt",),
           "torch.package archives"),
    Format("torch-members",   "torch.nested_archives", (".zip", ".mar", ".nemo"),
           "zip and tar archives of torch files (stable-baselines3, NeMo)"),
    Format("torch-dcp",       "torch.distributed", (),
           "distributed checkpoint folders (.metadata, *.distcp)"),
    Format("torch-deepspeed", "torch.deepspeed",   (),
           "DeepSpeed's folders, the parts of all ranks joined (ZeRO 1 to 3)"),
    Format("torch-megatron",  "torch.megatron",    (),
           "Megatron-LM's and NeMo's folders, the parts of all ranks joined (mp_rank_*)"),
    Format("torch-zarr",      "torch.megatron_zarr", (),
           "Megatron-Core's folders of zarr arrays, uncompressed"),
    Format("torch-sharded",   "torch.sharded",     (),
           "pytorch_model-*.bin with their index; folders of one torch file"),
    Format("hf-tensorflow",   "keras.pretrained",  (),
           "folders with transformers' tf_model.h5, also in shards"),
    Format("flax",            "flax",              (".msgpack",),
           "MessagePack of flax.serialization; folders with flax_model.msgpack, also in shards"),
    Format("savedmodel",      "tensorflow.savedmodel", (".pb", ".pbtxt"),
           "TF 1 and 2, saved_model.pb or .pbtxt", "the same one, for one device or for none"),
    Format("tf-checkpoint",   "tensorflow.checkpoint", (".index", ".ckpt", ".meta"),
           "object-based, name-based and V1 checkpoints"),
    Format("graphdef",        "tensorflow.graphdef", (".pb", ".pbtxt"),
           "frozen GraphDefs and meta graphs, binary or text"),
    Format("onnx",            "onnx.files",        (".onnx",),
           "inline and external data; protobuf text; models of Triton repositories"),
)
# fmt: on


class Match(NamedTuple):
    """A format, and why."""

    format: Format
    evidence: str


def detect(artifact: Artifact, format_id: str | None = None) -> Match:
    """Decide which format an artifact is of.

    Args:
        artifact: What to look at.
        format_id: The user's own decision, which is not questioned.

    Raises:
        UnknownFormatError: No format matches; the message says what it seems to be.
        UsageError: ``format_id`` names no format.
    """
    if format_id is not None:
        by_id = {f.id: f for f in FORMATS}
        if format_id not in by_id:
            raise UsageError(f"unknown format {format_id!r}", expected=", ".join(by_id))
        return Match(by_id[format_id], "format=")
    suffix = artifact.path.suffix.lower()
    for row in sorted(FORMATS, key=lambda f: suffix not in f.suffixes):
        evidence = row.sniff(artifact)
        if evidence is not None:
            return Match(row, evidence)
    from formats.unknown import describe

    raise describe(artifact)


def detect_graph(artifact: Artifact, format_id: str | None = None) -> Match:
    """Decide that an artifact is a TensorFlow graph, which a checkpoint is to be joined to.

    Raises:
        UsageError: There is no such format.
    """
    (row,) = (f for f in FORMATS if f.id == "graphdef")
    evidence = row.sniff(artifact) if format_id in (None, row.id) else None
    if evidence is None:
        what = format_id or detect(artifact).format.id
        raise UsageError(
            f"checkpoint= with a source that is {what}",
            expected="a GraphDef or a meta graph (.pb, .pbtxt, .meta)",
            where=artifact.path,
        )
    return Match(row, evidence)


def read_joined(artifact: Artifact, checkpoint: Artifact) -> Bundle:
    """Read a TensorFlow graph with the values that a checkpoint has of its variables.

    Raises:
        SourceError: As `Format.read`, or they do not belong together.
        UnsupportedError: As `Format.read`.
        UsageError: The graph has no variables.
    """
    from formats.tensorflow import graph_with_checkpoint

    return graph_with_checkpoint.read(artifact, checkpoint)


def read(
    artifact: Artifact, format_id: str | None = None, checkpoint: Artifact | None = None
) -> Bundle:
    """Detect and read, a checkpoint joined to a graph where one is given.

    Raises:
        LimitError: The tensors claim far more bytes than the artifact has (see `Limits`).
        SourceError: As `Format.read`.
        UnsupportedError: As `Format.read`.
        UnknownFormatError: As `detect`.
    """
    if checkpoint is None:
        bundle = detect(artifact, format_id).format.read(artifact)
    else:
        detect_graph(artifact, format_id)
        bundle = read_joined(artifact, checkpoint)
    check_expansion(bundle, artifact)
    return bundle


def check_expansion(bundle: Bundle, artifact: Artifact) -> None:
    """Raise LimitError when few stored bytes claim to be very many."""
    limits = artifact.limits
    tensors = {t.identity: t for t in bundle.weights.values()}
    for group in bundle.leftovers.values():
        tensors.update((t.identity, t) for t in group.values())
    if len(tensors) > limits.max_tensors:
        raise LimitError(f"{len(tensors)} tensors", where=artifact.path)
    logical = sum(t.nbytes for t in tensors.values())
    if logical <= limits.expansion_allowance_bytes:
        return
    stored = sum(file.size for file in artifact.opened.values())
    if logical > limits.max_expansion_ratio * stored:
        raise LimitError(
            f"tensors of {logical} bytes in {stored} stored ones",
            expected=f"at most {limits.max_expansion_ratio} times as many",
            where=artifact.path,
            hint="This looks like a decompression bomb",
        )
