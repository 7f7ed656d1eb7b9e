"""State that a graph refers to: variables and tables, as loading the model would leave them.

A SavedModel says itself how it is loaded: one op restores variables from the checkpoint, another
fills tables. These are walked as any other part of the graph is, with the checkpoint's tensors as
what RestoreV2 yields. So no name has to be guessed, neither of TensorFlow 1's nor of 2's.
"""

from collections.abc import Callable, Mapping

import numpy as np

from converter.lower.tf.context import Context
from converter.lower.tf.program_values import Entries, Table, Variable
from converter.lower.unsupported import Unsupported
from converter.lower.values import Value
from formats.core.bundle import Bundle
from formats.core.strings import Strings
from formats.core.weights import Tensor

# The name of every resource that no other node means.
# https://github.com/tensorflow/tensorflow/blob/v2.21.0/tensorflow/core/framework/resource_handle.h
ANONYMOUS = "cd2c89b7-88b7-44c8-ad83-06c2a9158347"
INLINE = 1 << 20  # bytes of a tensor that is no weight of the bundle and yet read


class State:
    """Variables and tables of one model.

    Attributes:
        changed: Keys of variables that what was lowered would assign to, which a graph cannot.
    """

    def __init__(
        self, op: Context, bundle: Bundle, restore: Callable[[], None], fill: Callable[[], None]
    ) -> None:
        """Take what loads the model.

        Args:
            op: The builder.
            bundle: The model.
            restore: Walks what restores the variables.
            fill: Walks what fills the tables.
        """
        self._op = op
        self._assets = bundle.assets
        self._keys = _by_key(bundle)
        self._weights = bundle.weights
        # Bytes of strings -> both weights that these are.
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
        self.changed: set[str] = set()

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
            key: The checkpoint's.
            part: What a RestoreV2 says of slices: empty, or ``10 4 0,5:-``.

        Raises:
            Unsupported: It is not there.
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
            Unsupported: Nothing gives it one.
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
        """Give a variable a value."""
        if not self._loading:
            if not self._op.is_outermost:
                raise Unsupported("a variable that a loop or a branch assigns to")
            self._load("variables")
            self.changed.add(_resource(variable))
        self._variables[_resource(variable)] = value

    # -- tables --------------------------------------------------------------------------------

    def entries(self, table: Table) -> Entries:
        """Return what a table holds.

        Raises:
            Unsupported: Nothing fills it.
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
        """Give a table its entries.

        Raises:
            Unsupported: The model itself changes it, beyond being loaded.
        """
        if not self._loading:
            raise Unsupported("a table that the model itself changes")
        self._tables[_resource(table)] = entries

    def asset(self, name: str) -> bytes:
        """Return the content of a file that the model brings.

        Raises:
            Unsupported: It is not there.
        """
        tail = name.rpartition("assets/")[2]
        span = self._assets.get(tail) or self._assets.get(name)
        if span is None:
            raise Unsupported(f"a file {name!r} that the model does not bring")
        return span.read()


def _resource(thing: Variable | Table) -> str:
    """Return what TensorFlow knows a resource by: all nodes that say this name mean the same."""
    return thing.key if thing.shared in ("", ANONYMOUS) else thing.shared


def _by_key(bundle: Bundle) -> Mapping[str, str]:
    """Return the checkpoint's keys, and names of constants, -> names of weights."""
    found: dict[str, str] = {}
    for name, tensor in bundle.weights.items():
        found.setdefault(tensor.origin, name)
        also = bundle.metadata.tensor_notes.get(name, {}).get("also_stored_as", [])
        for key in also if isinstance(also, list) else []:
            found.setdefault(str(key), name)
    return found


def as_text(value: object) -> str | bytes:
    """Return a string as ONNX takes it: text where it is UTF-8."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return value
    return str(value)


def texts(values: "list[bytes]", shape: tuple[int, ...]) -> np.ndarray:
    """Return byte strings as an array."""
    made = np.empty(len(values), object)
    made[:] = [as_text(v) for v in values]
    return made.reshape(shape)
