"""A TorchScript program walked node by node in Python, so that torch.export can follow it.

Plain, and nothing of the project, as the files beside it. torch.export does not take TorchScript,
and torch's own converter of it (TS2EPConverter) makes tensors of the sizes that a trace computes
with, or fixes them. Here what is a number in TorchScript stays one, also where a trace has made a
tensor of it: sizes remain symbols, conditions on them choose a branch, and loops over them unroll.
What depends on data cannot be followed, and is an error of torch.export's.
Spec: https://github.com/pytorch/pytorch/blob/v2.13.0/torch/csrc/jit/OVERVIEW.md
"""

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

LONGEST_LOOP = 10_000  # iterations that are unrolled


class UnknownNodeError(Exception):
    """A node of a kind that is not followed."""


def follow(torch: Any, script: Any) -> Any:
    """Return an nn.Module that does what a ScriptModule's ``forward`` does.

    It must be called once, on tensors, before it is exported: what the program keeps beside
    parameters and buffers is found then.
    """

    class Followed(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.program = _mirror(torch, script, {})
            self.__dict__["walk"] = _Walk(torch, self.program, script.inlined_graph)

        def forward(self, *given: Any) -> Any:
            return self.__dict__["walk"].run(given)

    made = Followed()
    made.eval()
    return made


def arguments(script: Any, given: Sequence[Any], named: Mapping[str, Any]) -> list[Any]:
    """Return all arguments of ``forward``, in order.

    Raises:
        UnknownNodeError: One has no value.
    """
    found = list(given)
    for argument in script.forward.schema.arguments[1 + len(found) :]:
        if argument.name in named:
            found.append(named[argument.name])
        elif argument.has_default_value():
            found.append(argument.default_value)
        else:
            raise UnknownNodeError(f"no value for {argument.name}")
    return found


def _mirror(torch: Any, script: Any, known: dict[int, Any]) -> Any:
    """Return a module with a ScriptModule's own parameters, buffers and children."""
    if id(script) in known:
        return known[id(script)]
    made = known[id(script)] = torch.nn.Module()
    for name, parameter in script.named_parameters(recurse=False):
        parameter = torch.nn.Parameter(parameter.detach(), requires_grad=False)
        made.register_parameter(name, parameter)
    for name, buffer in script.named_buffers(recurse=False):
        made.register_buffer(name, buffer)
    for name, child in script.named_children():
        made.add_module(name, _mirror(torch, child, known))
    made.__dict__["script"] = script
    return made


class _Walk:
    """One program and what it means."""

    def __init__(self, torch: Any, program: Any, graph: Any) -> None:
        self.torch = torch
        self.program = program
        self.graph = graph
        self.schemas: dict[str, Any] = {}
        # Where a tensor is registered: lists of a module's may name its parameters again.
        self.places: dict[Any, tuple[Any, str]] = {}
        for module in program.modules():
            for name, tensor in (*module._parameters.items(), *module._buffers.items()):
                self.places[_view(tensor)] = (module, name)

    def run(self, given: Sequence[Any]) -> Any:
        """Return what ``forward`` returns."""
        names = [value.debugName() for value in self.graph.inputs()]
        values: dict[str, Any] = dict(zip(names, (self.program, *given), strict=True))
        self.block(self.graph, values)
        results = [values[v.debugName()] for v in self.graph.outputs()]
        return results[0] if len(results) == 1 else tuple(results)

    def block(self, block: Any, values: dict[str, Any]) -> None:
        """Run the nodes of a block."""
        for node in block.nodes():
            kind = node.kind()
            if kind == "prim::If":
                self.branch(node, values)
            elif kind == "prim::Loop":
                self.loop(node, values)
            else:
                given = [values[v.debugName()] for v in node.inputs()]
                results = self.node(node, kind, given)
                for output, value in zip(node.outputs(), results, strict=True):
                    values[output.debugName()] = value

    def branch(self, node: Any, values: dict[str, Any]) -> None:
        """Run the branch that a condition chooses."""
        (condition,) = node.inputs()
        block = list(node.blocks())[0 if bool(values[condition.debugName()]) else 1]
        self.block(block, values)
        for output, inner in zip(node.outputs(), block.outputs(), strict=True):
            values[output.debugName()] = values[inner.debugName()]

    def loop(self, node: Any, values: dict[str, Any]) -> None:
        """Run a loop to its end."""
        (block,) = node.blocks()
        trips, goes_on, *carried = (values[v.debugName()] for v in node.inputs())
        count, (number, *names) = 0, block.inputs()
        while count < trips and bool(goes_on):
            values[number.debugName()] = count
            values.update(zip((n.debugName() for n in names), carried, strict=True))
            self.block(block, values)
            goes_on, *carried = (values[v.debugName()] for v in block.outputs())
            count += 1
            if count > LONGEST_LOOP:
                raise UnknownNodeError(f"a loop of more than {LONGEST_LOOP} rounds")
        for output, value in zip(node.outputs(), carried, strict=True):
            values[output.debugName()] = value

    def node(self, node: Any, kind: str, given: list[Any]) -> Sequence[Any]:
        """Return what a node yields."""
        if kind == "prim::Constant":
            return [self.constant(node)]
        if kind == "prim::GetAttr":
            return [self.attribute(given[0], node.s("name"))]
        if kind in SEVERAL:
            return list(SEVERAL[kind](given))
        if kind in FLAGS:
            return [FLAGS[kind]]
        if kind in PRIMS:
            return [PRIMS[kind](*given)]
        if kind == "aten::warn":
            return []
        if kind in ON_TENSORS and isinstance(given[0], self.torch.Tensor):
            return [ON_TENSORS[kind](*given)]
        on_list = kind in ON_LISTS and isinstance(given[0], (list, tuple, dict))
        plain = not any(isinstance(v, self.torch.Tensor) for v in given)
        if kind in ON_PLAIN and (on_list or plain):
            return [ON_PLAIN[kind](*given)]
        if not kind.startswith("aten::") or node.outputsSize() == 0:
            raise UnknownNodeError(kind)
        return self.operator(node, kind, given)

    def constant(self, node: Any) -> Any:
        """Return a constant; a tensor is kept, so that torch.export finds it."""
        output = node.output()
        if output.type().kind() == "NoneType" or not node.hasAttribute("value"):
            return None
        value = output.toIValue()
        return self.kept(output.debugName(), value)

    def kept(self, name: str, value: Any) -> Any:
        if not isinstance(value, self.torch.Tensor):
            return value
        called = "constant_" + "".join(c if c.isalnum() else "_" for c in name)
        if called not in self.program._buffers:
            self.program.register_buffer(called, value, persistent=False)
        return getattr(self.program, called)

    def attribute(self, owner: Any, name: str) -> Any:
        """Return an attribute of a module, or of an object of a class of the program's."""
        if not isinstance(owner, self.torch.nn.Module):
            return getattr(owner, name)
        for known in (owner._parameters, owner._buffers, owner._modules):
            if name in known:
                return known[name]
        value = getattr(owner.__dict__["script"], name)
        if isinstance(value, self.torch.Tensor):  # neither a parameter nor a buffer
            owner.register_buffer(name, value.detach(), persistent=False)
            return getattr(owner, name)
        if isinstance(value, (list, tuple)):
            return [self.registered(item, owner, f"{name}_{i}") for i, item in enumerate(value)]
        return value

    def registered(self, value: Any, owner: Any, name: str) -> Any:
        """Return a tensor of a list as it is registered, and register it where it is not."""
        if not isinstance(value, self.torch.Tensor):
            return value
        if _view(value) not in self.places:
            owner.register_buffer(name, value.detach(), persistent=False)
            self.places[_view(value)] = (owner, name)
        module, called = self.places[_view(value)]
        return getattr(module, called)

    def operator(self, node: Any, kind: str, given: list[Any]) -> Sequence[Any]:
        """Call one of torch's operators."""
        text = node.schema()
        if kind in FUSED:
            return FUSED[kind](self.torch, *given)
        if kind == "aten::_convolution":  # as traces name it, with how cuDNN shall compute it
            return [self.torch.ops.aten.convolution.default(*given[:9])]
        if text not in self.schemas:
            schema = self.torch._C.parse_schema(text)
            packet = getattr(self.torch.ops.aten, kind.removeprefix("aten::"))
            call = getattr(packet, schema.overload_name or "default")
            self.schemas[text] = (call, schema.arguments)
        call, arguments = self.schemas[text]
        by_place, by_name = [], {}
        for argument, value in zip(arguments, given, strict=True):
            if str(argument.type) == "Tensor" and _is_number(self.torch, value):
                value = self.as_tensor(value)
            if argument.kwarg_only:
                by_name[argument.name] = value
            else:
                by_place.append(value)
        result = call(*by_place, **by_name)
        return [result] if node.outputsSize() == 1 else list(result)

    def as_tensor(self, value: Any) -> Any:
        """Return the tensor of a number that stands for one."""
        if isinstance(value, (bool, self.torch.SymBool)):
            dtype = self.torch.bool
        elif isinstance(value, (int, self.torch.SymInt)):
            dtype = self.torch.int64
        else:
            dtype = self.torch.float64
        return self.torch.full((), value, dtype=dtype)


def _view(tensor: Any) -> Any:
    """Return what two tensors share that are one."""
    return (tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.dtype)


def _is_number(torch: Any, value: Any) -> bool:
    numbers = (bool, int, float, torch.SymInt, torch.SymFloat, torch.SymBool)
    return isinstance(value, numbers)


# -- what nodes mean -----------------------------------------------------------------------------


def _divided(a: Any, b: Any, rounding: Any = None) -> Any:
    if rounding == "floor":
        return a // b
    return a / b if rounding is None else math.trunc(a / b)


def _sliced(values: Any, start: Any = None, end: Any = None, step: Any = 1) -> Any:
    return values[start:end:step]


def _added(a: Any, b: Any, alpha: Any = 1) -> Any:
    return a + b if alpha == 1 else a + alpha * b


def _subtracted(a: Any, b: Any, alpha: Any = 1) -> Any:
    return a - alpha * b


def _appended(values: list[Any], value: Any) -> list[Any]:
    values.append(value)
    return values


def _raised(what: object) -> Any:
    raise ValueError(f"the program raises {what}")


def _kind(value: Any) -> str:
    """Return the kind of a device, or of the one that a tensor is on."""
    return str(getattr(value, "device", value).type)


def _pairs(given: Sequence[Any]) -> list[Any]:
    return [dict(zip(given[::2], given[1::2], strict=True))]


# -- what traces made without gradients have fused -----------------------------------------------


def _attention(
    torch: Any, query: Any, key: Any, value: Any, width: int, heads: int,
    weight: Any, bias: Any, out_weight: Any, out_bias: Any,
    mask: Any = None, need_weights: bool = True, average: bool = True, mask_type: Any = None,
) -> Sequence[Any]:  # fmt: skip
    """Return attention over several heads, [batch, steps, width], as nn.MultiheadAttention does."""
    if mask is not None and mask_type not in (0, 1):
        raise UnknownNodeError(f"attention with a mask of type {mask_type}")
    found, weights = torch.nn.functional.multi_head_attention_forward(
        query.transpose(0, 1), key.transpose(0, 1), value.transpose(0, 1), width, heads,
        weight, bias, None, None, False, 0.0, out_weight, out_bias,  # noqa: FBT003 - torch's own
        training=False, need_weights=need_weights, average_attn_weights=average,
        attn_mask=mask if mask_type == 0 else None,
        key_padding_mask=mask if mask_type == 1 else None,
    )  # fmt: skip
    return [found.transpose(0, 1), weights]


def _encoder_layer(
    torch: Any, x: Any, width: int, heads: int, weight: Any, bias: Any, out_weight: Any,
    out_bias: Any, gelu: bool, norm_first: bool, epsilon: float,
    scale_1: Any, shift_1: Any, scale_2: Any, shift_2: Any,
    weight_1: Any, bias_1: Any, weight_2: Any, bias_2: Any, mask: Any = None, mask_type: Any = None,
) -> Sequence[Any]:  # fmt: skip
    """Return what nn.TransformerEncoderLayer does."""
    functional = torch.nn.functional
    activation = functional.gelu if gelu else functional.relu

    def attention(x: Any) -> Any:
        return _attention(
            torch, x, x, x, width, heads, weight, bias, out_weight, out_bias,
            mask, need_weights=False, mask_type=mask_type,
        )[0]  # fmt: skip

    def feed_forward(x: Any) -> Any:
        inner = activation(functional.linear(x, weight_1, bias_1))
        return functional.linear(inner, weight_2, bias_2)

    def norm(x: Any, scale: Any, shift: Any) -> Any:
        return functional.layer_norm(x, (width,), scale, shift, epsilon)

    if norm_first:
        x = x + attention(norm(x, scale_1, shift_1))
        return [x + feed_forward(norm(x, scale_2, shift_2))]
    x = norm(x + attention(x), scale_1, shift_1)
    return [norm(x + feed_forward(x), scale_2, shift_2)]


FUSED: Mapping[str, Callable[..., Sequence[Any]]] = {
    "aten::_native_multi_head_attention": _attention,
    "aten::_transformer_encoder_layer_fwd": _encoder_layer,
}


# -- everything else -----------------------------------------------------------------------------

# fmt: off
# Nodes of several outputs, or of any number of inputs.
SEVERAL: Mapping[str, Callable[[list[Any]], Sequence[Any]]] = {
    "prim::ListConstruct":  lambda given: [list(given)],
    "prim::TupleConstruct": lambda given: [tuple(given)],
    "prim::DictConstruct":  _pairs,
    "prim::ListUnpack":     lambda given: given[0],
    "prim::TupleUnpack":    lambda given: given[0],
    "prim::RaiseException": lambda given: _raised(given[0]),
}
PRIMS: Mapping[str, Callable[..., Any]] = {
    "prim::NumToTensor":    lambda x: x,
    "prim::TupleIndex":     lambda x, i: x[i],
    "prim::unchecked_cast": lambda x: x,
    "prim::device":         lambda x: x.device,
    "prim::dtype":          lambda x: x.dtype,
    "prim::layout":         lambda x: x.layout,
    "prim::is_cuda":        lambda x: x.is_cuda,
    "prim::type":           _kind,
    "prim::is_quantized":   lambda x: x.is_quantized,
    "prim::is_sparse":      lambda x: x.is_sparse,
    "prim::data":           lambda x: x,
    "prim::min":            lambda *x: min(*x),
    "prim::max":            lambda *x: max(*x),
}
FLAGS: Mapping[str, Any] = {
    # Where gradients are wanted, attention is computed by operators that can be exported.
    "aten::is_grad_enabled": True, "prim::requires_grad": True, "aten::is_scripting": True,
    "aten::is_autocast_enabled": False, "aten::is_autocast_cpu_enabled": False,
    "prim::is_nested": False, "prim::Uninitialized": None,
}
ON_TENSORS: Mapping[str, Callable[..., Any]] = {
    "aten::size":           lambda x, *i: x.shape[i[0]] if i else list(x.shape),
    "aten::dim":            lambda x: x.dim(),
    "aten::numel":          lambda x: x.numel(),
    "aten::len":            lambda x: x.shape[0],
    "aten::is_floating_point": lambda x: x.is_floating_point(),
    "aten::__is__":         lambda a, b: a is b,
    "aten::__isnot__":      lambda a, b: a is not b,
    "aten::Int":            lambda x: x.item(),
    "aten::Float":          lambda x: x.item(),
    "aten::Bool":           lambda x: bool(x),
    "aten::IntImplicit":    lambda x: x.item(),
    "aten::FloatImplicit":  lambda x: x.item(),
    "aten::ScalarImplicit": lambda x: x.item(),
}
# On numbers, texts, lists, tuples, dicts and None.
ON_PLAIN: Mapping[str, Callable[..., Any]] = {
    "aten::Int":            lambda x: x if not isinstance(x, float) else int(x),
    "aten::Float":          lambda x: x * 1.0 if not isinstance(x, str) else float(x),
    "aten::Bool":           lambda x: x != 0,
    "aten::IntImplicit":    lambda x: x,
    "aten::FloatImplicit":  lambda x: x,
    "aten::ScalarImplicit": lambda x: x,
    "aten::add":            _added,
    "aten::add_":           _added,
    "aten::sub":            _subtracted,
    "aten::rsub":           lambda a, b, alpha=1: b - alpha * a,
    "aten::mul":            lambda a, b: a * b,
    "aten::div":            _divided,
    "aten::floordiv":       lambda a, b: a // b,
    "aten::floor_divide":   lambda a, b: a // b,
    "aten::remainder":      lambda a, b: a % b,
    "aten::pow":            lambda a, b: a ** b,
    "aten::neg":            lambda x: -x,
    "aten::abs":            lambda x: abs(x),
    "aten::sqrt":           lambda x: x ** 0.5,
    "aten::floor":          lambda x: math.floor(x),
    "aten::ceil":           lambda x: math.ceil(x),
    "aten::round":          lambda x: round(x),
    "aten::eq":             lambda a, b: a == b,
    "aten::ne":             lambda a, b: a != b,
    "aten::lt":             lambda a, b: a < b,
    "aten::le":             lambda a, b: a <= b,
    "aten::gt":             lambda a, b: a > b,
    "aten::ge":             lambda a, b: a >= b,
    "aten::__and__":        lambda a, b: a and b,
    "aten::__or__":         lambda a, b: a or b,
    "aten::__xor__":        lambda a, b: a ^ b,
    "aten::__not__":        lambda x: not x,
    "aten::__is__":         lambda a, b: a is b,
    "aten::__isnot__":      lambda a, b: a is not b,
    "aten::__contains__":   lambda a, b: b in a,
    "aten::__getitem__":    lambda x, i: x[i],
    "aten::_set_item":      lambda x, i, v: operator.setitem(x, i, v),
    "aten::len":            lambda x: len(x),
    "aten::append":         _appended,
    "aten::slice":          _sliced,
    "aten::format":         lambda text, *x: text.format(*x),
    "aten::__range_length": lambda a, b, c: len(range(a, b, c)),
    "aten::__derive_index": lambda i, a, c: a + i * c,
    "aten::copy":           lambda x: x.copy(),
    "aten::list":           lambda x: list(x),
    "aten::dict":           lambda *x: dict(*x),
    "aten::keys":           lambda x: list(x.keys()),
    "aten::values":         lambda x: list(x.values()),
    "aten::items":          lambda x: list(x.items()),
    "aten::ord":            lambda x: ord(x),
    "aten::str":            lambda x: str(x),
}
ON_LISTS = frozenset(("aten::append", "aten::_set_item"))  # whatever is put into them
# fmt: on
