"""THE table of targets: what a source can be converted to, and which options that takes.

To add a target: a module of this package with ``plan(bundle, graphs, artifact, options) -> Plan``
(see `converter.write.plan`), and one row here. Nothing else in the project lists targets.

``--help`` reads this table, so what it does not need is imported where it is used.
"""

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, cast

if TYPE_CHECKING:
    from converter.lower.graph import Graph
    from converter.options import Options
    from converter.write.plan import Plan
    from formats.artifact import Artifact
    from formats.core.bundle import Bundle

AUTO = "auto"  # the target follows the suffix of the output
DEFAULT = "portable"
# What only some targets take, each with the default that says nothing.
SPECIFIC: dict[str, object] = {
    "device": None, "precision": None, "keep_structure": False, "arch": None, "inputs": (),
    "exporter": "auto", "include": (), "strip_prefix": "auto", "task": None, "merge_adapter": None,
    "dequantize": False, "triton": {}, "state": "drop", "propagate_nan": False,
}  # fmt: skip
NAMES = ("include", "strip_prefix")
PROGRAM = ("arch", "inputs")
WEIGHTS = ("merge_adapter", "dequantize")


class Target(NamedTuple):
    """A row of the table.

    Attributes:
        id: The value of ``to``.
        module: Its module in `converter.write`, imported when it is first needed.
        suffix: Of the output, where no output is named.
        suffixes: All that its output may have; the first targets of the table go first.
        writes: What is written, for people.
        format: The row of `formats.catalog` that reads it.
        graph: Whether graphs are lowered for it: ``none``; ``optional``, where the output is
            complete without; ``required``; ``own``, where the source's own program is written;
            ``own or required``, where a source of the target's format has its own.
        takes: Which options of `SPECIFIC` it takes.
        needs_device: Whether it cannot do without a device.
        keeps_source: Whether it starts from the source as it was read: no tensor is renamed or
            left out before its plan is made.
        one_file: Suffix of an output that is one file with one graph; ``*`` for any output.
        is_folder: Whether the output is always a folder.
        parse_device: Function of `converter.devices.names` that checks the device before the source
            is opened, or "".
    """

    id: str
    module: str
    suffix: str
    suffixes: tuple[str, ...]
    writes: str
    format: str
    graph: Literal["none", "optional", "required", "own", "own or required"]
    takes: tuple[str, ...] = ()
    needs_device: bool = False
    keeps_source: bool = False
    one_file: str = ""
    is_folder: bool = False
    parse_device: str = ""

    @property
    def lowers(self) -> bool:
        """Whether it has graphs of our own."""
        return self.graph not in ("none", "own")

    def graph_of(self, format: str) -> str:
        """Return whether graphs of a source of a format are lowered: a value of `graph`."""
        own, _, other = self.graph.partition(" or ")
        return other if other and format != self.format else own

    def is_one_file(self, out: Path | None, options: "Options") -> bool:
        """Return whether an output of this name is one file with one graph.

        Raises:
            UsageError: Settings of a Triton entry are malformed.
        """
        if "triton" in self.takes:
            from converter.write.triton.settings import is_repository

            return not is_repository(options)
        return self.one_file == "*" or (
            bool(self.one_file) and out is not None and out.suffix.lower() == self.one_file
        )

    def plan(
        self, bundle: "Bundle", graphs: "Sequence[Graph]", artifact: "Artifact", options: "Options"
    ) -> "Plan":
        """Decide what becomes of every part of the source; no weight is read.

        Args:
            bundle: The source, normalised unless `keeps_source`.
            graphs: As lowered, the default one first; empty where there is none.
            artifact: The source's files.
            options: Of the conversion.

        Raises:
            UnsupportedError: The source is none for this target; all that it lacks is named.
            CorruptError: The source is damaged.
            UsageError: An option does not fit what the source holds.
        """
        module = import_module(f"converter.write.{self.module}")
        return cast("Plan", module.plan(bundle, graphs, artifact, options))

    def check_device(self, device: str | None) -> None:
        """Check a device's name, before the source is opened.

        Raises:
            UsageError: It names no device of this target.
        """
        from converter.devices import names

        if self.parse_device:
            getattr(names, self.parse_device)(device)


# fmt: off
TARGETS = (
    Target("portable",    "portable",         ".portable", (".portable",),
           "a folder: manifest, safetensors, and an ONNX graph where there is one",
           "portable", "optional", (*NAMES, *PROGRAM, "task", "exporter", "state", "propagate_nan",
            *WEIGHTS),
           is_folder=True),
    Target("safetensors", "safetensors",      ".safetensors", (".safetensors",),
           "weights: one file, or shards with an index",
           "safetensors", "none", (*NAMES, *WEIGHTS)),
    Target("hf",          "hugging_face",     ".hf", (".hf",),
           "a Hugging Face folder: safetensors, and its other files unchanged",
           "safetensors", "none", (*NAMES, *WEIGHTS), is_folder=True),
    Target("onnx",        "onnx",             ".onnx", (".onnx",),
           "self-contained ONNX files, one for each signature",
           "onnx", "required",
           (*NAMES, *PROGRAM, *WEIGHTS, "task", "exporter", "state", "device", "precision",
            "propagate_nan"),
           one_file=".onnx"),
    Target("keras",       "keras.archive",    ".keras", (".keras",),
           "a .keras file that the current Keras loads",
           "keras", "own", NAMES),
    Target("savedmodel",  "savedmodel.folder", ".savedmodel", (".savedmodel",),
           "the same SavedModel, placed on one device or on none",
           "savedmodel", "own", ("device",),
           keeps_source=True, is_folder=True, parse_device="parse_tensorflow_device"),
    Target("torch",       "torch.checkpoint", ".{device}.pt", (".pt", ".pth", ".ckpt", ".bin"),
           "a state dict in torch's format, for one device",
           "torch", "none", (*NAMES, "device", "keep_structure", "dequantize"),
           needs_device=True, keeps_source=True, parse_device="parse_torch_device"),
    Target("torchscript", "torch.program",    ".{device}.pt", (".pt", ".pth", ".ts", ".jit"),
           "the same TorchScript program, on another device",
           "torchscript", "own", (*PROGRAM, "device"),
           needs_device=True, keeps_source=True, parse_device="parse_torch_device"),
    Target("pt2",         "torch.program",    ".{device}.pt2", (".pt2",),
           "an exported program: the same one, on another device, or the graph of any source",
           "torch-export", "own or required", (*PROGRAM, "task", "exporter", "state", "device"),
           needs_device=True, keeps_source=True, one_file="*", parse_device="parse_torch_device"),
    Target("triton",      "triton.entry",     ".triton", (".triton",),
           "a model of a Triton repository, or a repository with one for each signature",
           "onnx", "required",
           (*NAMES, *PROGRAM, *WEIGHTS, "task", "exporter", "state", "device", "precision",
            "propagate_nan", "triton"),
           needs_device=True, one_file="*", is_folder=True),
)
# fmt: on
_BY_ID = {row.id: row for row in TARGETS}


def list_targets() -> str:
    """Return the ids of all targets, for people."""
    *some, last = _BY_ID
    return f"{', '.join(some)} or {last}"


def find_target(name: str) -> Target:
    """Return the row of a target; upper case counts as lower case.

    Raises:
        UsageError: There is none of that name; the message lists them, and a near match.
    """
    from converter.options import check_choice

    name = DEFAULT if name == AUTO else name.lower()
    check_choice("to", name, _BY_ID)
    return _BY_ID[name]


def check_options(options: "Options") -> Target:
    """Return the target that options name, and check them, alone and against the target.

    Raises:
        UsageError: They contradict each other, one has a value that there is not, the target does
            not take one, or misses one.
        UnsupportedError: ``opset`` is none that is written.
    """
    from converter.options import check
    from formats.errors import UsageError

    target = find_target(options.to)
    check(options)
    for name, default in SPECIFIC.items():
        value = getattr(options, name)
        is_given = value != default and (name, value) != ("strip_prefix", "none")
        if is_given and name not in target.takes:
            takers = " or ".join(row.id for row in TARGETS if name in row.takes)
            raise UsageError(
                f"to={target.id!r} does not take {name}=", expected=f"to= with {takers}"
            )
    if options.keep_structure and (options.include or options.strip_prefix != "auto"):
        raise UsageError(
            "keep_structure=True keeps everything, and include= and strip_prefix= change it",
            expected="one or the other",
        )
    if "device" in (options.require, options.verify) and options.device in (None, "none"):
        option = f"{'verify' if options.verify == 'device' else 'require'}='device'"
        if "device" not in target.takes:
            raise UsageError(
                f"{option} with to={target.id!r}, whose output names no device",
                hint="The command `verify` with device= compares what was written",
            )
        raise UsageError(f"{option} without a device", expected="device= with cuda:0, GPU:0, …")
    if options.triton:
        from converter.write.triton.settings import parse_settings

        parse_settings(options.triton)
    if target.needs_device and options.device is None:
        example = "gpu:0" if target.id == "triton" else "cuda:1"
        raise UsageError(
            f"to={target.id!r} writes for one device, and none is named",
            expected=f"device= with cpu, {example}, …",
        )
    target.check_device(options.device)
    return target
