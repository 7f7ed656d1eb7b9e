"""Draw inputs that reach what a graph computes, and report what they do not reach.

A Relu whose input is never negative is computed like an Identity, and a Clip whose bounds are never
met like none. The values inside the graph are looked at: which side of each activation, bound and
condition the inputs reach, and which part of each table. Inputs at other scales are drawn for what
is missing, and those that reach most of it are added to the comparison.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import inf
from pathlib import Path
from typing import Any

import numpy as np

from converter.child import process as child
from converter.child.process import Allowance
from converter.verification.inputs.draw import Case, Hint
from converter.verification.onnx_values import NodeInterface, OnnxInterface
from converter.verification.report import Coverage
from converter.verification.runners import (
    CHILDREN,
    PreparedInputs,
    describe_sessions,
    onnx_python,
    write_inputs,
)
from formats.core.bundle import TensorSpec
from formats.errors import DependencyError

PROBE = CHILDREN / "probe_values.py"
MAX_CASES = 3  # that are added
MAX_NAMED = 12  # ranges that a report names
BUCKETS = 8  # parts of a table
TINY = 1e-30  # the least number that is positive
LARGE = 8.0  # above the bound of Relu6 and the like

Range = tuple[str, float, float]
SIGNS: tuple[Range, ...] = (("negative", -inf, -TINY), ("positive", TINY, inf))
SQUASHED: tuple[Range, ...] = (("below 0", -2.0, -TINY), ("above 0", TINY, 2.0))
TRUTH: tuple[Range, ...] = (("false", 0, 0), ("true", 1, 1))
# A runtime that clips above where the graph does not is found only by large numbers: these drive
# the drawing, but a model may never reach them, so they are not reported.
BEYOND: Range = ("", LARGE, inf)
RANGES: Mapping[str, tuple[Range, ...]] = {
    **dict.fromkeys(
        ("Relu", "LeakyRelu", "PRelu", "Elu", "Selu", "Celu", "ThresholdedRelu", "Softplus"),
        (*SIGNS, BEYOND),
    ),
    **dict.fromkeys(("Abs", "Sign"), SIGNS),
    **dict.fromkeys(("Sigmoid", "Tanh", "HardSigmoid", "HardSwish", "Erf", "Gelu"),
                    (*SQUASHED, ("", 3.0, inf), ("", -inf, -3.0))),
    **dict.fromkeys(("Where", "If"), TRUTH),
}  # fmt: skip

# Other values of a floating point input, given one drawn as usual.
SCALES: Mapping[str, Any] = {
    "larger": lambda x: x * 10,
    "positive": np.abs,
    "negative": lambda x: -np.abs(x),
    "pixels": lambda x: np.abs(x) % 1 * 255,
    "much larger": lambda x: x * 100,
    "smaller": lambda x: x * 0.1,
}


@dataclass(frozen=True, slots=True)
class Probe:
    """A value to look at, and the ranges of its elements that make a difference."""

    node: NodeInterface
    value: str
    ranges: tuple[Range, ...]


def extend_plan(
    model: Path,
    file: OnnxInterface,
    specs: Sequence[TensorSpec],
    hints: Sequence[Hint],
    plan: Sequence[Sequence[Case]],
    folder: Path,
    allowance: Allowance,
    *,
    may_draw: bool = True,
) -> tuple[list[list[Case]], Coverage | None]:
    """Add the cases to a plan that reach what its own do not.

    Args:
        model: The ONNX file.
        file: Its interface.
        specs: Specs of the inputs.
        hints: Hints on their values, in the same order.
        plan: Alternatives of each case.
        folder: Folder for files.
        allowance: Limits of the child process.
        may_draw: Whether cases may be added: not to inputs of the user.

    Returns:
        The plan, and what it reaches; None if the graph cannot be looked at.
    """
    whole = [[*alternatives] for alternatives in plan]
    probes = [*_find_probes(file)]
    if not probes or len(file.inputs) != len(specs):
        return whole, None
    names = tuple(spec.name for spec in file.inputs)
    found = _look(
        model, file, replace(write_inputs(folder, specs, whole), names=names), probes, allowance
    )
    if found is None:
        return whole, None
    seen = np.zeros(sum(len(probe.ranges) for probe in probes), bool)
    ran = [case for case, _ in found if case is not None]
    for _, bits in found:
        seen |= bits
    if may_draw and ran and not seen.all():
        drawn = [*_draw_variants(specs, hints, ran)]
        prepared = replace(write_inputs(folder, specs, [[case] for case in drawn]), names=names)
        more = _look(model, file, prepared, probes, allowance) if drawn else None
        rest = [bits for case, bits in more or () if case is not None]
        kept = [case for case, (ran_as, _) in zip(drawn, more or (), strict=False) if ran_as]
        while rest and len(whole) < len(plan) + MAX_CASES:
            gains = [int((bits & ~seen).sum()) for bits in rest]
            best = int(np.argmax(gains))
            if not gains[best]:
                break
            seen |= rest.pop(best)
            whole.append([kept.pop(best)])
    return whole, _report(probes, seen)


def _find_probes(file: OnnxInterface) -> Iterator[Probe]:
    """Yield the values that decide what a node computes."""
    known = file.values | {spec.name for spec in file.inputs}
    for node in file.nodes:
        if node.op_type in RANGES and node.inputs[0] in known:
            yield Probe(node, node.inputs[0], RANGES[node.op_type])
        elif node.op_type == "Clip" and node.inputs[0] in known:
            low, high = map(_number, (file, file), (*node.inputs[1:], "", "")[:2], (-inf, inf))
            ranges: list[Range] = [("inside its bounds", low, high)]
            if low > -inf:
                ranges.append(("below its bounds", -inf, np.nextafter(low, -inf)))
            if high < inf:
                ranges.append(("above its bounds", np.nextafter(high, inf), inf))
            yield Probe(node, node.inputs[0], tuple(ranges))
        elif (
            node.op_type == "Gather" and node.inputs[1] in known and node.inputs[0] in file.weights
        ):
            rows = (*file.weights[node.inputs[0]].shape, 0)[0]
            edges = np.linspace(0, rows, BUCKETS + 1).astype(int)
            parts = [(int(a), int(b) - 1) for a, b in pairwise(edges) if b > a]
            yield Probe(node, node.inputs[1], tuple((f"rows {a} to {b}", a, b) for a, b in parts))


def _number(file: OnnxInterface, name: str, default: float) -> float:
    """Return a bound of Clip: a constant; the default if there is none, or it is computed."""
    if name not in file.weights:
        return default
    return float(file.weights[name].numpy().reshape(-1)[0])


def _look(
    model: Path,
    file: OnnxInterface,
    prepared: PreparedInputs,
    probes: Sequence[Probe],
    allowance: Allowance,
) -> list[tuple[Case | None, np.ndarray]] | None:
    """Return the alternative that ran and the ranges that it reached, for each case; or None."""
    inner = [i for i, probe in enumerate(probes) if probe.value in file.values]
    shown: dict[str, list[Range]] = {}
    for i in inner:
        shown.setdefault(probes[i].value, []).extend(probes[i].ranges)
    question = {
        **describe_sessions(model, prepared, [], {}, dict.fromkeys(shown, "float32"), "probe"),
        "probes": [[[low, high] for _, low, high in ranges] for ranges in shown.values()],
        "groups": prepared.groups,
    }
    try:
        answer = child.ask(
            PROBE, prepared.folder, question,
            what="onnxruntime", allowance=allowance, python=onnx_python(), environment={},
        )  # fmt: skip
    except DependencyError:
        return None
    if answer.get("status") != "done":
        return None
    found = []
    for case, reached in answer["groups"]:
        ran = None if case is None else prepared.cases[case]
        queues = {name: iter(bits) for name, bits in zip(shown, reached, strict=False)}
        bits = [
            _reaches(probe, number, file, ran, queues) for probe in probes
            for number in range(len(probe.ranges))
        ]  # fmt: skip
        found.append((ran, np.array(bits, bool)))
    return found


def _reaches(
    probe: Probe,
    number: int,
    file: OnnxInterface,
    ran: Case | None,
    queues: Mapping[str, Iterator[bool]],
) -> bool:
    """Return whether a case reaches a range of a probe, by its number."""
    if ran is None:
        return False
    if probe.value in queues:
        return next(queues[probe.value])
    names = [spec.name for spec in file.inputs]
    array = ran.arrays[names.index(probe.value)]
    _, low, high = probe.ranges[number]
    return array.dtype.kind not in "fiub" or bool(((array >= low) & (array <= high)).any())


def _draw_variants(
    specs: Sequence[TensorSpec], hints: Sequence[Hint], cases: Sequence[Case]
) -> Iterator[Case]:
    """Yield cases of the same sizes with other values, the likeliest to reach more first."""
    rng = np.random.default_rng(len(specs))
    for name, change in SCALES.items():
        for case in cases[-1:]:
            arrays = [
                _vary(array, spec.dtype, hint, change, rng)
                for array, spec, hint in zip(case.arrays, specs, hints, strict=True)
            ]
            if any(new is not old for new, old in zip(arrays, case.arrays, strict=True)):
                yield Case(f"{case.name}, {name}", tuple(arrays))


def _vary(
    array: np.ndarray, dtype: str, hint: Hint, change: Any, rng: np.random.Generator
) -> np.ndarray:
    """Return other values for an input: of floating point numbers, or of indices into a table."""
    if hint.words or hint.is_mask or hint.counted or hint.grain:
        return array
    if hint.high is not None and array.size:  # evenly over the table
        spread = np.linspace(hint.low, hint.high - 1, array.size).astype(array.dtype)
        varied = rng.permutation(spread).reshape(array.shape)
        return np.sort(varied) if hint.is_sorted and array.ndim else varied
    if dtype == "bool":
        return ~array
    if "float" not in dtype:
        return array
    return np.asarray(change(array), array.dtype)


def _report(probes: Sequence[Probe], seen: np.ndarray) -> Coverage:
    named = [(p.node, name) for p in probes for name, _, _ in p.ranges]
    ranges = [
        (node, name, bool(bit)) for (node, name), bit in zip(named, seen, strict=True) if name
    ]
    missing = [f"{node.name} ({node.op_type}): {name}" for node, name, bit in ranges if not bit]
    return Coverage(len(ranges), len(ranges) - len(missing), tuple(missing[:MAX_NAMED]))
