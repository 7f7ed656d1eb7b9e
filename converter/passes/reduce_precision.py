"""Reduce float32 to float16 or bfloat16, only on request.

Products are computed in the narrow type, and so are cheap nodes after them whose inputs are all
narrow. Nodes that sum, divide, exponentiate or count stay float32, and so do the inputs and outputs
of the graph: masks of -1e9, epsilons and position indices stay exact. A value that both kinds of
nodes read is cast once.

Narrow kernels: https://github.com/microsoft/onnxruntime/blob/main/docs/OperatorKernels.md
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from converter.lower.element_types import ELEMENT_TYPES
from converter.lower.graph import Attribute, Folded, Graph, Node, Spec
from converter.passes.fold_constants import constant_of
from formats.core.weights import DTYPES, Tensor, numpy_dtype

WIDE = "float32"

# fmt: off
PRODUCTS = frozenset({"Conv", "ConvTranspose", "MatMul", "Gemm", "Einsum", "LSTM", "GRU", "RNN"})
FOLLOWERS = frozenset({
    "Add", "Sub", "Mul", "Neg", "Abs", "Relu", "LeakyRelu", "PRelu", "Elu", "Selu", "Sigmoid",
    "HardSigmoid", "HardSwish", "Tanh", "Gelu", "Erf", "Clip", "Max", "Min", "Softmax",
    "LogSoftmax", "LayerNormalization", "InstanceNormalization", "GroupNormalization",
    "BatchNormalization",
    "MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "Where", "Concat", "Split",
    "Slice", "Gather", "GatherElements", "GatherND", "Expand", "Flatten", "Reshape", "Transpose",
    "Squeeze", "Unsqueeze", "Tile", "Pad", "Identity", "ScatterElements", "ScatterND",
    "DepthToSpace", "SpaceToDepth", "Resize", "ReverseSequence", "Trilu", "Dropout", "Compress",
})
# Operators of both sets without a bfloat16 kernel on GPUs.
NOT_IN_BFLOAT16 = frozenset({
    "ConvTranspose", "Einsum", "LSTM", "GRU", "RNN", "Abs", "LeakyRelu", "PRelu", "Elu", "Selu",
    "Clip", "LogSoftmax", "InstanceNormalization", "GroupNormalization", "BatchNormalization",
    "MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "Pad", "DepthToSpace",
    "SpaceToDepth", "Resize",
})
BFLOAT16_SINCE = {"Conv": 22, "HardSigmoid": 22, "HardSwish": 22, "Gelu": 20}
# Inputs and outputs that are always float32.
FIXED_INPUTS = {"Resize": (1, 2), "BatchNormalization": (3, 4)}
FIXED_OUTPUTS = {"LayerNormalization": (1, 2)}
# fmt: on
NARROW = {"fp16": "float16", "bf16": "bfloat16"}
LARGEST, SMALLEST = 65504.0, 2.0**-14  # range of normal float16 numbers
FEW = 16  # in constants of at most this many elements, no nonzero value may underflow


@dataclass(slots=True)
class Reduced:
    """A graph of reduced precision.

    Attributes:
        graph: The new graph.
        narrow: Operator → number of nodes that compute in the narrow type.
        wide: Operator → number of nodes that stay float32 only because of their inputs.
    """

    graph: Graph
    narrow: Counter[str] = field(default_factory=Counter)
    wide: Counter[str] = field(default_factory=Counter)


def reduce_precision(
    graph: Graph, weights: Mapping[str, Tensor], precision: str, *, emulate: bool = False
) -> Reduced:
    """Return the graph with products in a narrow type.

    Args:
        graph: The graph in float32, after all other passes.
        weights: Tensors that it refers to.
        precision: ``fp16`` or ``bf16``.
        emulate: Compute in float32 and round to the narrow type, for runtimes without narrow
            kernels.
    """
    dtype = NARROW[precision]
    made = Reduced(graph)
    scope = _Scope(graph, weights, dtype, WIDE if emulate else dtype, made, None)
    made.graph = scope.rewrite()
    return made


class _Scope:
    """A graph being rewritten; each subgraph has its own scope."""

    def __init__(
        self,
        graph: Graph,
        weights: Mapping[str, Tensor],
        dtype: str,
        kept_as: str,
        made: Reduced,
        parent: "_Scope | None",
    ) -> None:
        self.graph = graph
        self.weights = weights
        self.dtype = dtype
        self.kept_as = kept_as
        self.made = made
        self.parent = parent
        self.nodes: list[Node] = []
        self.specs = dict(graph.specs)
        self.initializers = dict(graph.initializers)
        self.narrow: dict[str, str] = {}  # name -> name of the same value in the narrow type
        self.pending: set[str] = set()  # values that exist only in the narrow type so far
        self.native: set[str] = set()  # values that were computed in the narrow type
        self.own = set(graph.inputs) | set(graph.initializers)
        self.fits: dict[str, bool] = {}

    def rewrite(self) -> Graph:
        """Return the rewritten graph, whose inputs and outputs are unchanged."""
        for node in self.graph.nodes:
            self.own.update(node.outputs)
            self._rewrite(node)
        for name in self.graph.outputs:
            self.wide(name)
        return replace(
            self.graph,
            nodes=self.nodes,
            specs=self.specs,
            initializers=self.initializers,
            traces=[],
        )

    # -- values ----------------------------------------------------------------------------------

    def wide(self, name: str) -> str:
        """Return the name of a value in its original dtype."""
        if name not in self.own and self.parent is not None:
            return self.parent.wide(name)
        if name in self.pending:
            self.pending.remove(name)
            self._append_cast(self.narrow[name], name, WIDE)
        return name

    def half(self, name: str) -> str:
        """Return the name of a float32 value in the narrow type."""
        if name not in self.own and self.parent is not None:
            return self.parent.half(name)
        if name not in self.narrow:
            narrow = self.narrow[name] = self._fresh(name)
            spec = self.graph.specs[name]
            self.specs[narrow] = replace(spec, dtype=self.kept_as)
            if name in self.initializers:
                sizes = tuple(int(str(n)) for n in spec.shape)
                make = constant_of(self.graph, self.weights, name)
                self.initializers[narrow] = Folded(self.kept_as, sizes, self._round(make))
            else:
                self._append_rounding(name, narrow)
        return self.narrow[name]

    def _round(self, make: Callable[[], np.ndarray]) -> Callable[[], np.ndarray]:
        narrow, kept = numpy_dtype(DTYPES[self.dtype]), numpy_dtype(DTYPES[self.kept_as])
        return lambda: make().astype(narrow).astype(kept)

    def _fresh(self, name: str) -> str:
        found = f"{name}/{self.dtype}"
        while found in self.specs:
            found += "_"
        return found

    def _append_cast(self, name: str, to: str, dtype: str) -> None:
        if self.specs[name].dtype == dtype:
            self.nodes.append(Node("Identity", [name], [to], {}, f"cast/{to}"))
        else:
            number: dict[str, Attribute] = {"to": ELEMENT_TYPES[dtype]}
            self.nodes.append(Node("Cast", [name], [to], number, f"cast/{to}"))

    def _append_rounding(self, name: str, to: str) -> None:
        """Append a cast to the narrow type, or a rounding of float32 to its values."""
        if self.kept_as == self.dtype:
            self._append_cast(name, to, self.dtype)
            return
        between = self._fresh(to)
        self.specs[between] = replace(self.specs[name], dtype=self.dtype)
        self._append_cast(name, between, self.dtype)
        self._append_cast(between, to, self.kept_as)

    def _spec(self, name: str) -> Spec | None:
        if name in self.own or self.parent is None:
            return self.graph.specs.get(name)
        return self.parent._spec(name)

    def _is_wide(self, name: str) -> bool:
        spec = self._spec(name) if name else None
        return spec is not None and spec.dtype == WIDE

    def _is_constant(self, name: str) -> bool:
        if name in self.own or self.parent is None:
            return name in self.initializers
        return self.parent._is_constant(name)

    def _is_native(self, name: str) -> bool:
        if name in self.own or self.parent is None:
            return name in self.native
        return self.parent._is_native(name)

    def _constant_fits(self, name: str) -> bool:
        """Return whether a constant fits the narrow type: no overflow, no underflow of epsilons."""
        if name not in self.own and self.parent is not None:
            return self.parent._constant_fits(name)
        if self.dtype != "float16":
            return True
        if name not in self.fits:
            array = np.abs(constant_of(self.graph, self.weights, name)())
            least = array[array > 0].min(initial=1.0) if array.size <= FEW else 1.0
            self.fits[name] = bool(least >= SMALLEST and array.max(initial=0.0) <= LARGEST)
        return self.fits[name]

    # -- nodes -----------------------------------------------------------------------------------

    def _rewrite(self, node: Node) -> None:
        values = [n for n in (*node.inputs, *node.outputs) if self._is_wide(n)]
        if values and self._may_be_narrow(node):
            self._narrow(node)
            return
        attributes = {name: self._inner(value) for name, value in node.attributes.items()}
        inputs = [self.wide(name) if name else "" for name in node.inputs]
        self.nodes.append(replace(node, inputs=inputs, attributes=attributes))

    def _inner(self, value: Attribute) -> Attribute:
        if not isinstance(value, Graph):
            return value
        scope = _Scope(value, self.weights, self.dtype, self.kept_as, self.made, self)
        return scope.rewrite()

    def _may_be_narrow(self, node: Node) -> bool:
        op = node.op_type
        if node.domain or op not in PRODUCTS | FOLLOWERS:
            return False
        if self.dtype == "bfloat16" and (
            op in NOT_IN_BFLOAT16 or self.graph.opset < BFLOAT16_SINCE.get(op, 0)
        ):
            return False
        if any(node.outputs[i : i + 1] not in ([], [""]) for i in FIXED_OUTPUTS.get(op, ())):
            return False
        read = [n for n in self._narrow_inputs(node) if self._is_wide(n)]
        constants = [n for n in read if self._is_constant(n)]
        others = [n for n in read if not self._is_constant(n)]
        fits = all(self._constant_fits(n) for n in constants)
        if op not in PRODUCTS:
            fits = fits and bool(others) and all(self._is_native(n) for n in others)
        if not fits:
            self.made.wide[op] += 1
        return fits

    def _narrow_inputs(self, node: Node) -> list[str]:
        fixed = FIXED_INPUTS.get(node.op_type, ())
        return [name for i, name in enumerate(node.inputs) if name and i not in fixed]

    def _narrow(self, node: Node) -> None:
        fixed = FIXED_INPUTS.get(node.op_type, ())
        inputs = [
            self.half(name) if i not in fixed and self._is_wide(name) else name and self.wide(name)
            for i, name in enumerate(node.inputs)
        ]
        outputs = []
        for name in node.outputs:
            if not self._is_wide(name):
                outputs.append(name)
                continue
            narrow = self.narrow[name] = self._fresh(name)
            self.specs[narrow] = replace(self.graph.specs[name], dtype=self.kept_as)
            self.pending.add(name)
            self.native.add(name)
            outputs.append(narrow)
        self.made.narrow[node.op_type] += 1
        if self.kept_as == self.dtype:
            self.nodes.append(replace(node, inputs=inputs, outputs=outputs))
            return
        exact = [
            self._fresh(o) if o != n else o for o, n in zip(outputs, node.outputs, strict=True)
        ]
        self.nodes.append(replace(node, inputs=inputs, outputs=exact))
        for there, here in zip(exact, outputs, strict=True):
            if there != here:
                self.specs[there] = self.specs[here]
                self._append_rounding(there, here)
