"""Named values of a graph of an exported program, held against what torch recorded of each.

Spec: https://github.com/pytorch/pytorch/blob/v2.13.0/torch/_export/serde/schema.py
"""

from collections.abc import Mapping, Sequence
from typing import Any

from converter.lower import dims
from converter.lower.graph import Dim, Shape
from converter.lower.torch.calls import DROPPED
from converter.lower.torch.context import Context
from converter.lower.torch.expressions import parse_size
from converter.lower.torch.mutable_tensors import Reference
from converter.lower.torch.program_document import (
    Object,
    all_names,
    list_or_empty,
    parse_number,
    require_object,
    value_names,
)
from converter.lower.torch.program_values import ProgramValue
from converter.lower.torch.table import plain_name
from converter.lower.unsupported import Unsupported
from converter.lower.values import Value
from formats.core.plurals import count
from formats.errors import CorruptError
from formats.torch.export import SCALAR_TYPES

# What an argument may be that has no part in what is computed.
PLACES = ("as_device", "as_memory_format", "as_layout")
SYMBOLS = ("as_sym_int", "as_sym_float", "as_sym_bool")


class GraphValues:
    """The values of one graph: the program's own, or one inside an op of it.

    Attributes:
        graph: The graph in the document.
        metas: Name of a tensor -> what torch recorded of it: dtype, sizes, strides.
        values: Name -> value.
        unknown: Names without a value, because something is not supported.
        read: Names of values that anything reads.
        absent: Names of outputs that handlers do not make.
    """

    def __init__(self, op: Context, graph: Object, axis_names: Mapping[str, str]) -> None:
        """Prepare a graph.

        Args:
            op: Builder.
            graph: The graph in the document.
            axis_names: Symbols of the program -> names of axes.
        """
        self.op = op
        self.graph = graph
        self.metas = require_object(graph.get("tensor_values"), "a graph without its values")
        self.axis_names = axis_names
        self.values: dict[str, ProgramValue] = {}
        self.unknown: set[str] = set()
        self.read: set[str] = set()
        self.absent: set[str] = set()

    def select_nodes(self, nodes: Sequence[Any]) -> list[Object]:
        """Return nodes without those that only assertions need, and note which values are read."""
        selected = []
        for node in reversed(nodes):
            node = require_object(node, "a node that is no object")
            outputs = list_or_empty(node.get("outputs"))
            are_numbers = outputs and all(map(_is_number, outputs))
            if plain_name(str(node.get("target"))) in DROPPED or (
                are_numbers and self.read.isdisjoint(all_names(outputs))
            ):
                continue
            self.read.update(value_names(node.get("inputs")))
            selected.append(node)
        return selected[::-1]

    def argument(self, arg: Any) -> ProgramValue:
        """Return an argument of a node.

        Raises:
            Unsupported: It is of a kind that we do not know.
        """
        if not isinstance(arg, dict) or len(arg) != 1:
            raise CorruptError("an argument that says nothing")
        ((kind, content),) = arg.items()
        if kind == "as_none" or kind in PLACES:
            return None
        if kind in ("as_int", "as_bool", "as_string", "as_ints", "as_bools", "as_strings"):
            return content
        if kind == "as_float":
            return parse_number(content)
        if kind == "as_complex":
            return complex(parse_number(content.get("real")), parse_number(content.get("imag")))
        if kind == "as_floats":
            return [parse_number(n) for n in list_or_empty(content)]
        if kind == "as_scalar_type":
            if content not in SCALAR_TYPES:
                raise Unsupported(f"dtype {content}")
            return SCALAR_TYPES[content]
        if kind in ("as_tensor", "as_optional_tensor"):
            return self._named(content) if "name" in content else self.argument(content)
        if kind in ("as_tensors", "as_optional_tensors"):
            return [
                self._named(t) if "name" in t else self.argument(t) for t in list_or_empty(content)
            ]
        if kind in SYMBOLS:
            return self._symbol(content)
        if kind in ("as_sym_ints", "as_sym_floats", "as_sym_bools"):
            return [self._symbol(c) for c in list_or_empty(content)]
        raise Unsupported(f"an argument {kind.removeprefix('as_').replace('_', ' ')}")

    def _named(self, content: Any) -> ProgramValue:
        name = content.get("name") if isinstance(content, dict) else None
        if name in self.absent:
            raise Unsupported("an output that only training reads")
        if name not in self.values:
            raise CorruptError(f"a node reads {name!r}, which is not there")
        return self.values[name]

    def _symbol(self, content: Any) -> ProgramValue:
        ((kind, value),) = require_object(content, "a number that says nothing").items()
        if kind == "as_name":
            return self._named({"name": value})
        return parse_number(value) if kind == "as_float" else value

    def bind(self, outputs: Sequence[Any], made: ProgramValue) -> None:
        """Give what a node yields its names."""
        if len(outputs) == 1 and isinstance(outputs[0], dict):
            alone = isinstance(made, list) and len(made) == 1 and "as_tensor" in outputs[0]
            self._name(outputs[0], made[0] if alone else made)
            return
        if not outputs:
            return
        if not isinstance(made, list):
            raise Unsupported(count("output", len(outputs)))
        for output, value in zip(outputs, made, strict=False):
            self._name(require_object(output, "an output that is no object"), value)
        # What only training reads is not made.
        self.absent.update(all_names(outputs[len(made) :]))

    def _name(self, output: Object, value: ProgramValue) -> None:
        ((kind, content),) = output.items()
        if kind == "as_tensors":
            if not isinstance(value, list) or len(value) != len(list_or_empty(content)):
                raise Unsupported("another number of outputs")
            for one, part in zip(list_or_empty(content), value, strict=True):
                self._name({"as_tensor": one}, part)
        elif kind == "as_tensor":
            if content["name"] not in self.read:
                return
            if isinstance(value, Unsupported):  # an output that no handler makes, and that is read
                raise value
            if not isinstance(value, Reference):
                raise Unsupported("an output that is no tensor")
            self.values[content["name"]] = self._checked(content["name"], value)
        elif kind in SYMBOLS and isinstance(content, dict) and "as_name" in content:
            self.values[content["as_name"]] = value
        elif not self.read.isdisjoint(value_names(content)):
            raise Unsupported(f"an output {kind.removeprefix('as_').replace('_', ' ')}")

    def _checked(self, name: str, tensor: Reference) -> Reference:
        """Hold a tensor against what torch recorded of it, and learn sizes that we did not see.

        Raises:
            Unsupported: They contradict each other.
        """
        meta = self.metas.get(name)
        if not isinstance(meta, dict):
            return tensor
        value = tensor.read()
        dtype = SCALAR_TYPES.get(meta.get("dtype", 0))
        if dtype != value.dtype:
            raise Unsupported(f"torch records {dtype}, and not {value.dtype}")
        shape = self.shape(meta)
        if len(shape) != value.rank:
            raise Unsupported(f"torch records {count('axis', len(shape))}, and not {value.rank}")
        for ours, theirs in zip(value.shape, shape, strict=True):
            if isinstance(ours, int) and isinstance(theirs, int) and ours != theirs:
                raise Unsupported(
                    f"torch records the shape {list(shape)}, and not {list(value.shape)}"
                )
        declared = tuple(
            self._declared_size(value, i, ours, theirs)
            for i, (ours, theirs) in enumerate(zip(value.shape, shape, strict=True))
        )
        if declared != value.shape:
            tensor.set_value(self.op.shaped(value, declared))
        return tensor

    def _declared_size(self, value: Value, axis: int, ours: Dim, theirs: Dim) -> Dim:
        """Return the better known one of two sizes that are equal."""
        if isinstance(theirs, int):
            return theirs
        if ours is None and isinstance(theirs, str):
            if theirs.isidentifier() and not self.op.is_known(theirs):
                self.op.define(theirs, lambda: self.op.measured(value, axis))
            return theirs if self.op.is_known(theirs) else None
        return ours

    def shape(self, meta: Mapping[str, Any]) -> Shape:
        """Return the shape that torch recorded of a tensor."""
        return tuple(self.dim(size) for size in list_or_empty(meta.get("sizes")))

    def dim(self, size: Any) -> Dim:
        """Return a size as it is recorded."""
        if not isinstance(size, dict):
            return None
        number = size.get("as_int")
        if type(number) is int:
            return number
        expression = size.get("as_expr")
        if not isinstance(expression, dict):
            return None
        return parse_size(self.op, str(expression.get("expr_str", "")), self.axis_names)

    def check_order(self, args: Sequence[Object]) -> None:
        """Raise Unsupported unless torch records that a tensor's elements lie in order."""
        meta = self.metas.get(next(value_names(args[0].get("arg")), "")) if args else None
        shape = self.shape(meta) if isinstance(meta, dict) else ()
        strides = [self.dim(n) for n in list_or_empty(meta.get("strides"))] if meta else []
        apart: Dim = 1
        for n, step in zip(reversed(shape), reversed(strides), strict=True):
            if n != 1 and step != apart:
                raise Unsupported("a view of memory in which the elements do not lie in order")
            apart = dims.mul(apart, n)


def _is_number(output: Any) -> bool:
    """Return whether what a node yields is a number: nothing else can come of that node."""
    return isinstance(output, dict) and set(output) <= set(SYMBOLS)
