"""States of stateful recurrent layers, as inputs and outputs of the graph.

Keras creates them as zeros when it loads a model, assigns them after each call, and stores them in
no file. Here they have the dtype that the layer computes in: a mixed policy's variables are float32
and hold values of float16. They are named by the layer: ``past.lstm.h``, ``past.lstm.c``;
``past.rnn.0``, ... for cells with other states than these; ``past.both/forward.h`` for a direction
of Bidirectional.
Spec: https://github.com/keras-team/keras/blob/v3.15.0/keras/src/layers/rnn/rnn.py
"""

from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from converter.lower.builder import Builder
from converter.lower.keras.recurrent import DIRECTIONS, Pass
from converter.lower.keras.table import Unsupported
from converter.lower.states import make_state
from converter.lower.values import Value

NAMES = {1: ("h",), 2: ("h", "c")}  # number of states of a cell whose output is its first state


class LayerStates:
    """The states of a model's layers."""

    def __init__(self, op: Builder, layers: Container[tuple[str, ...]], *, is_legacy: bool) -> None:
        """Initialize for a model without states.

        Args:
            op: The builder.
            layers: Paths of the layers that are called; Keras finds those by their names.
            is_legacy: Whether the model is older than Keras 3.
        """
        self._op, self._layers, self._is_legacy = op, layers, is_legacy
        self._after: dict[str, list[Value]] = {}

    @contextmanager
    def refused(self, reason: str) -> Iterator[None]:
        """Refuse states inside, where Keras does not find or call a layer as the graph does.

        Raises:
            Unsupported: There are some.
        """
        before = len(self._after)
        yield
        if len(self._after) > before:
            raise Unsupported(reason)

    def begin(self, way: Pass, x: Value) -> Pass:
        """Return a pass that starts from inputs of the graph if its layer is stateful.

        Args:
            way: The pass.
            x: [batch, steps, ...].

        Raises:
            Unsupported: The layer's states cannot be inputs.
        """
        w, cell = way.stateful, way.cell
        if w is None:
            return way
        if way.initial and not self._is_legacy:
            return replace(way, stateful=None)  # Keras 3 then never reads what it assigns
        path = tuple(w.layer.split("/"))
        if path[-1] in DIRECTIONS and path not in self._layers:
            path = path[:-1]
        if way.initial:
            raise Unsupported("a stateful layer that is given initial states")
        if path not in self._layers:
            raise Unsupported("a stateful layer inside a wrapper")
        if w.layer in self._after:
            raise Unsupported("a stateful layer that is called more than once")
        zeros = cell.zeros(cell.project(x))
        if any(not isinstance(n, int) for zero in zeros for n in zero.shape):
            raise Unsupported("a stateful layer without a fixed batch size")
        names = NAMES.get(len(zeros), ()) if cell.result == 0 else ()
        self._after[w.layer] = []
        values = []
        for number, zero in enumerate(zeros):
            name = names[number] if names else number
            state = make_state(f"{w.layer}.{name}", zero.shape, 0)
            self._op.reserve([state.input, state.output])
            values.append(self._op.input(state.input, zero.dtype, zero.shape))
            self._op.graph.states.append(state)
            self._op.graph.sources[state.input] = f"{w.layer}:{number}"
        return replace(way, initial=values)

    def end(self, way: Pass, states: Sequence[Value]) -> None:
        """Record the states after a pass."""
        if way.stateful is not None:
            self._after[way.stateful.layer] = [*states]

    def finish(self) -> None:
        """Make outputs of the states after the call."""
        after = [value for states in self._after.values() for value in states]
        for state, value in zip(self._op.graph.states, after, strict=True):
            dtype = self._op.graph.specs[state.input].dtype
            self._op.output(self._op.cast(value, dtype), state.output)
