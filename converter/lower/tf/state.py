"""State of a graph: variables and tables, with their values after the model is loaded.

A SavedModel contains the ops that load it: one restores variables from the checkpoint, another
fills tables. They are lowered like the rest of the graph, with the checkpoint's tensors as the
outputs of RestoreV2. So no variable name is guessed, neither in TensorFlow 1 nor in 2.
"""

from collections.abc import Callable, Mapping

import numpy as np

from converter.lower.graph import State as KeptState
from converter.lower.graph import Weight
from converter.lower.states import MOST_VALUES, WEIGHTS, list_initial, list_values, make_state
from converter.lower.tf.context import Context
from converter.lower.tf.program_values import Entries, Table, Variable
from converter.lower.unsupported import Unsupported
from converter.lower.values import Value
from formats.core.bundle import Bundle
from formats.core.strings import Strings
from formats.core.weights import Tensor
from formats.errors import UnsupportedError

# The shared name of every anonymous resource.
# https://github.com/tensorflow/tensorflow/blob/v2.21.0/tensorflow/core/framework/resource_handle.h
ANONYMOUS = "cd2c89b7-88b7-44c8-ad83-06c2a9158347"
INLINE = 1 << 20  # maximum bytes of a tensor that is read but is not a weight of the bundle


class State:
    """Variables and tables of one model.

    Attributes:
        changed: Variables that lowered ops assign to, by their keys.
    """

    def __init__(
        self, op: Context, bundle: Bundle, restore: Callable[[], None], fill: Callable[[], None]
    ) -> None:
        """Initialize the state of a model.

        Args:
            op: The builder.
            bundle: The model.
            restore: Lowers the ops that restore the variables.
            fill: Lowers the ops that fill the tables.
        """
        self._op = op
        self._assets = bundle.assets
        self._keys = _by_key(bundle)
        self._weights = bundle.weights
        # Weight with the bytes of strings -> its encoding.
        self._texts = {e.parts["bytes"]: e for e in bundle.encodings.values() if e.kind == "string"}
        self._others: dict[str, Tensor] = {
            tensor.origin: tensor
            for group in bundle.leftovers.values()
            for tensor in group.values()
        }
        self._variables: dict[str, Value] = {}
        self._tables: dict[str, Entries] = {}
        self._loaders = {"variables": restore, "tables": fill}
        self._loading = ""
        self.changed: dict[str, Variable] = {}

    # -- loading -------------------------------------------------------------------------------

    def _load(self, what: str) -> None:
        loader = self._loaders.pop(what, None)
        if loader is None:
            return
        before, self._loading = self._loading, what
        try:
            loader()
        finally:
            self._loading = before

    def stored(self, key: str, part: str = "") -> Value:
        """Return a tensor of the checkpoint.

        Args:
            key: Key in the checkpoint.
            part: Slice specification of RestoreV2: empty, or ``10 4 0,5:-``.

        Raises:
            Unsupported: The checkpoint has no such tensor.
        """
        name = self._keys.get(key)
        value = self._small(key) if name is None else self._weight(name)
        if not part.strip():
            return value
        *sizes, cuts = part.split()
        axes, starts, ends = [], [], []
        for axis, cut in enumerate(cuts.split(":")):
            if cut == "-":
                continue
            start, _, length = cut.partition(",")
            axes.append(axis)
            starts.append(int(start))
            ends.append(int(start) + int(length))
        del sizes
        return self._op.slice(value, axes, starts, ends) if axes else value

    def _weight(self, name: str) -> Value:
        encoding = self._texts.get(name)
        if encoding is None:
            return self._op.weight(name)
        data, offsets = (self._weights[encoding.parts[part]] for part in ("bytes", "offsets"))
        found = Strings(encoding.shape, data, offsets).values()
        return self._op.constant(texts(found, encoding.shape))

    def _small(self, key: str) -> Value:
        tensor = self._others.get(key)
        if tensor is None:
            raise Unsupported(f"the checkpoint has no {key!r}")
        if tensor.nbytes > INLINE:
            raise Unsupported(f"{key!r} counts as training state, and has {tensor.nbytes} bytes")
        return self._op.constant(tensor.numpy())

    # -- variables -----------------------------------------------------------------------------

    def read(self, variable: Variable) -> Value:
        """Return a variable's value.

        Raises:
            Unsupported: The variable has no value.
        """
        found = self._variables.get(_resource(variable))
        if found is None:
            self._load("variables")
            found = self._variables.get(_resource(variable))
        for name in (variable.key, variable.shared):
            if found is None and name in self._keys:
                found = self._weight(self._keys[name])
            if found is None and name in self._weights:
                found = self._weight(name)
        if found is None:
            raise Unsupported("a variable without a value: checkpoint=PREFIX gives it one")
        return found

    def assign(self, variable: Variable, value: Value) -> None:
        """Assign a value to a variable."""
        if not self._loading:
            if not self._op.is_outermost:
                raise Unsupported(
                    f"a variable that a loop or a branch assigns to: {_resource(variable)!r}"
                )
            self._load("variables")
            self.changed[_resource(variable)] = variable
        self._variables[_resource(variable)] = value

    def start(self, variables: Mapping[str, Variable]) -> None:
        """Make inputs of the values that variables have before a run.

        Raises:
            UnsupportedError: A variable has no first value, or one that cannot be recorded.
        """
        for key, variable in variables.items():
            try:
                state, value = self._begin(key, variable)
            except (Unsupported, ValueError) as e:
                raise UnsupportedError(f"not supported: state {key!r} ({e})") from e
            self._op.graph.states.append(state)
            self._op.graph.sources[state.input] = self._op.graph.sources[state.output] = key
            self._variables[key] = value

    def _begin(self, key: str, variable: Variable) -> tuple[KeptState, Value]:
        """Return a variable as a state, and the input with its value."""
        op, first = self._op, self.read(variable)
        weight = op.graph.initializers.get(first.name)
        elements = op.static(first)
        if isinstance(weight, Weight) and first.is_plain:
            # A name that is a place in a list says less than the variable's own.
            is_listed = weight.tensor.rpartition("/")[2].isdigit()
            is_taken = weight.tensor in {s.tensor for s in op.graph.states}
            tensor = key if is_listed or is_taken else weight.tensor
            initial = None if tensor == weight.tensor else list_initial(op.weights[weight.tensor])
            if initial == WEIGHTS and not is_taken:
                tensor, initial = weight.tensor, None
        elif elements is None or elements.size > MOST_VALUES or elements.dtype.kind not in "fiub":
            raise Unsupported("a first value that is neither stored nor a small constant")
        else:
            tensor, initial = key, list_values(elements)
        if initial == WEIGHTS:
            raise Unsupported("its first value is that of another state, and large")
        declared = variable.shape
        if declared is None or len(declared) != first.rank:
            declared = first.shape
        shape = tuple(
            n if isinstance(n, int) and n >= 0 else f"{key}_{axis}"
            for axis, n in enumerate(declared)
        )
        state = make_state(tensor, first.shape, initial)
        op.reserve([state.input, state.output])
        return state, op.input(state.input, first.dtype, shape)

    def finish(self, variables: Mapping[str, Variable]) -> None:
        """Make outputs of the values that variables have after a run.

        Raises:
            UnsupportedError: A value has another shape than before.
        """
        for state, (key, variable) in zip(self._op.graph.states, variables.items(), strict=True):
            value, before = self.read(variable), self._op.graph.specs[state.input].shape
            sizes = zip(value.shape, before, strict=False)
            if value.rank != len(before) or any(
                isinstance(m, int) and isinstance(n, int) and m != n for m, n in sizes
            ):
                raise UnsupportedError(
                    f"not supported: state {key!r} of shape {list(before)}, which a run makes"
                    f" {list(value.shape)}"
                )
            self._op.output(value, state.output)

    # -- tables --------------------------------------------------------------------------------

    def entries(self, table: Table) -> Entries:
        """Return the entries of a table.

        Raises:
            Unsupported: The table is never filled.
        """
        name = _resource(table)
        if name not in self._tables:
            self._load("tables")
        if name not in self._tables:
            self._load("variables")
        found = self._tables.get(name)
        if found is None:
            raise Unsupported(f"table {table.shared or table.key!r} is filled by nothing")
        return found

    def fill(self, table: Table, entries: Entries) -> None:
        """Set the entries of a table.

        Raises:
            Unsupported: The model changes the table after it is loaded.
        """
        if not self._loading:
            raise Unsupported("a table that the model itself changes")
        self._tables[_resource(table)] = entries

    def asset(self, name: str) -> bytes:
        """Return the content of an asset file of the model.

        Raises:
            Unsupported: The model has no such file.
        """
        tail = name.rpartition("assets/")[2]
        span = self._assets.get(tail) or self._assets.get(name)
        if span is None:
            raise Unsupported(f"a file {name!r} that the model does not bring")
        return span.read()


def _resource(operand: Variable | Table) -> str:
    """Return a resource's key: nodes with the same key refer to the same resource."""
    return operand.key if operand.shared in ("", ANONYMOUS) else operand.shared


def _by_key(bundle: Bundle) -> Mapping[str, str]:
    """Return a mapping from keys of the checkpoint, and names of constants, to names of weights."""
    found: dict[str, str] = {}
    for name, tensor in bundle.weights.items():
        found.setdefault(tensor.origin, name)
        also = bundle.metadata.tensor_notes.get(name, {}).get("also_stored_as", [])
        for key in also if isinstance(also, list) else []:
            found.setdefault(str(key), name)
    return found


def as_text(value: object) -> str | bytes:
    """Return a string for ONNX: str if it is valid UTF-8, else bytes."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return value
    return str(value)


def texts(values: "list[bytes]", shape: tuple[int, ...]) -> np.ndarray:
    """Return byte strings as an object array of a shape."""
    made = np.empty(len(values), object)
    made[:] = [as_text(v) for v in values]
    return made.reshape(shape)
