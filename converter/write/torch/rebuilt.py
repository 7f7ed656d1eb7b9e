"""The target ``pt2`` of a source that is no exported program: its graph, exported by torch.

TorchScript archives, SavedModels, Keras and ONNX files become programs of torch.export. The graph
is written as an ONNX file, from which a child builds a module of torch's and exports it (see
`converter.write.torch.graph_module`). The source's tensors are its parameters, under their names.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from converter.child import process as child
from converter.child.process import TORCH_PYTHON_VARIABLE, Allowance
from converter.child.trust import ROOT
from converter.devices.names import TorchDevice, parse_torch_device
from converter.devices.torch.programs import check_device, move_program
from converter.events import Step
from converter.extras import describe_install
from converter.graphs import describe_graph
from converter.lower.graph import Graph, Weight
from converter.lower.states import PROPERTY, encode_states
from converter.options import Options
from converter.write import graph_files
from converter.write.plan import GraphFile, Plan, Writing
from converter.write.readback import WeightsReport
from converter.write.same_tensors import compare_elements
from formats.artifact import Artifact
from formats.core.bundle import Bundle
from formats.core.weights import DTYPES
from formats.errors import DependencyError, UnsupportedError, VerificationError
from formats.torch import export as torch_export

SCRIPT = Path(__file__).with_name("graph_module") / "export_graph.py"
FILE, EXPORTED = "model.pt2", "exported.pt2"
KIND = "exported_program"
TUPLES = ("torchscript", "torch_modules")  # kinds of topologies whose programs return tuples
SMALL = 64  # elements of an array of integers that is a constant of the program


class RebuiltProgram(Plan):
    """A program that can be exported.

    Attributes:
        bundle: As it will be.
        graph: What it computes.
        device: On which it will run.
        options: Of the conversion.
    """

    def __init__(self, bundle: Bundle, graph: Graph, device: TorchDevice, options: Options) -> None:
        self.bundle, self.warnings = bundle, ()
        self.graph, self.device, self.options = graph, device, options
        self._files: list[GraphFile] = []

    def summary(self) -> str:
        """Return what there is to export, and for which device."""
        return f"{describe_graph(self.graph)}, for {self.device}"

    def write(self, payload: Path, *, verify: bool, sync: bool) -> Writing:
        """Have torch export the graph, and compare the program's weights with the source's.

        Raises:
            DependencyError: torch is not installed, or its child died.
            UnsupportedError: The graph has something that there is not in torch.
        """
        begin = perf_counter()
        aside = payload.with_name("aside").absolute()
        aside.mkdir()
        yield from graph_files.write_self_contained(self.graph, self.bundle, aside, sync=False)
        onnx, path = aside / graph_files.GRAPH, payload / FILE
        answer = self._export(aside, onnx)
        for note in _describe_limits(answer["limits"]):
            yield Step("warning", note)
        if self.device.kind == "cpu":
            (aside / EXPORTED).replace(path)
        else:
            move_program(
                Artifact(aside / EXPORTED, self.options.limits), KIND, str(self.device), path
            )
        if sync:
            with path.open("rb") as file:
                os.fsync(file.fileno())
        self._files.append(GraphFile(self.graph, onnx, program=path))
        by = f"torch {answer['versions']['torch']}"
        yield Step("exported", f"a program, by {by}", perf_counter() - begin)
        if not verify:
            return path, None
        begin = perf_counter()
        output = Artifact(path, self.options.limits)
        report = self._compare_weights(torch_export.read(output), answer["paths"])
        check_device(output, KIND, self.device)
        text = f"{report}; devices"
        yield Step("verified", text, perf_counter() - begin)
        return path, report

    def graph_files(self) -> Sequence[GraphFile]:
        """Return the graph's file, and the program made from it."""
        return self._files

    def _export(self, folder: Path, onnx: Path) -> Mapping[str, Any]:
        """Return the child's answer."""
        graph, kind = self.graph, self.bundle.topology.kind if self.bundle.topology else ""
        question = {
            "graph": str(onnx),
            "weights": self._weights(),
            "inputs": [
                {"name": n, "dtype": graph.specs[n].dtype, "shape": list(graph.specs[n].shape)}
                for n in graph.inputs
            ],
            "as_dict": kind not in TUPLES,
            "root": str(ROOT),
            "program": EXPORTED,
            "extra": {PROPERTY: encode_states(graph, self.bundle.weights)} if graph.states else {},
        }
        answer = child.ask(
            SCRIPT, folder, question, what="torch.export",
            allowance=Allowance(self.options.comparison.timeout),
            python=os.environ.get(TORCH_PYTHON_VARIABLE) or sys.executable,
        )  # fmt: skip
        match answer.get("status"):
            case "done":
                return answer
            case "absent":
                lacking = " and ".join(answer["lacking"])
                raise DependencyError(f"to='pt2' needs {lacking}", hint=describe_install("torch"))
            case _:
                raise UnsupportedError(f"not supported as an exported program: {answer['error']}")

    def _weights(self) -> dict[str, str]:
        """Return the tensors that become parameters: the initializer's name and the tensor's."""
        found: dict[str, str] = {}
        for name, value in self.graph.initializers.items():
            if isinstance(value, Weight):
                tensor = self.bundle.weights[value.tensor]
                is_size = "int" in tensor.dtype.name and np.prod(tensor.shape) <= SMALL
                found |= {} if is_size else {name: value.tensor}
        return found

    def _compare_weights(self, output: Bundle, paths: Mapping[str, str]) -> WeightsReport:
        """Compare the parameters of a program with the source's tensors, bit for bit.

        Raises:
            VerificationError: They differ.
        """
        nbytes = 0
        for name, path in paths.items():
            theirs, ours = self.bundle.weights[name], output.weights.get(path)
            if ours is None or (ours.dtype, ours.shape) != (theirs.dtype, theirs.shape):
                raise VerificationError("the program lacks the tensor", where=name)
            nbytes += compare_elements(name, theirs, ours)
        return WeightsReport(len(paths), nbytes, {}, {})


def plan(bundle: Bundle, graph: Graph, artifact: Artifact, options: Options) -> RebuiltProgram:
    """Decide what the program of a graph will be.

    Raises:
        UsageError: ``device`` is not the name of a device.
        UnsupportedError: The graph has inputs that torch has no tensors for.
    """
    device = parse_torch_device(options.device)
    if not device.has_storages:
        raise UnsupportedError(f"not supported: exported programs for {device.kind}")
    for name in graph.inputs:
        spec = graph.specs[name]
        if spec.dtype not in DTYPES or spec.unranked or spec.type:
            what = "of unknown rank" if spec.unranked else f"of dtype {spec.dtype}"
            raise UnsupportedError(
                f"not supported as an exported program: input {name!r} {what}", where=artifact.path
            )
    return RebuiltProgram(bundle, graph, device, options)


def _describe_limits(limits: Mapping[str, Mapping[str, tuple[int, int | None]]]) -> list[str]:
    """Return a sentence for each input with dynamic axes that torch has restricted."""
    return [
        f"torch.export has restricted {', '.join(_describe_axis(*a) for a in axes.items())} of "
        f"input {name!r}, which the source leaves dynamic"
        for name, axes in limits.items()
    ]


def _describe_axis(axis: str, limits: tuple[int, int | None]) -> str:
    least, greatest = limits
    if greatest is None:
        return f"axis {axis} to at least {least}"
    return f"axis {axis} to {least}" if least == greatest else f"axis {axis} to {least}..{greatest}"
