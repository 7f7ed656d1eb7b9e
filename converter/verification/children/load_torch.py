"""What `run_torch` runs: modules, scripts and exported programs, called alike.

Plain, and nothing of the project, as the file beside it. A source says what of its inputs it
declares, runs on tensors, reports its device, and returns the outputs of its layers.
"""

import dataclasses
import importlib
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

RANDOM = re.compile(
    r"(aten|prims|torch\.ops\.aten)(::|\.)(rand\w*|bernoulli\w*|multinomial|normal\w*|dropout\w*"
    r"|native_dropout|alpha_dropout\w*|feature_dropout\w*|poisson|exponential\w*|uniform\w*|rrelu\w*)"
    r"(\.\w+)?"
)


class Stateful:
    """A source with attributes that it keeps from one run to the next."""

    torch: Any
    module: Any

    def get_state(self, path: str) -> Any:
        """Return an attribute of the module or of one inside, by its path with dots."""
        owner, name = self.find_owner(path)
        return getattr(owner, name)

    def set_state(self, path: str, value: Any) -> None:
        """Set an attribute; buffers are written in place, as they may have several names."""
        owner, name = self.find_owner(path)
        kept = getattr(owner, name)
        if isinstance(kept, (bool, int, float)):
            setattr(owner, name, value.item())
        elif name in dict(owner.named_buffers(recurse=False)) and kept.shape == value.shape:
            with self.torch.no_grad():
                kept.copy_(value)
        else:
            setattr(owner, name, value)

    def find_owner(self, path: str) -> tuple[Any, str]:
        """Return the module that an attribute is of, and the attribute's name there."""
        owner = self.module
        *parents, name = path.split(".")
        for parent in parents:
            owner = getattr(owner, parent)
        return owner, name


class Modules(Stateful):
    """A module, or a ScriptModule, that is called with tensors."""

    def __init__(
        self, torch: Any, loaded: Any, names: list[str], wanted: list[str], fixed: dict[str, Any]
    ) -> None:
        self.fixed = fixed
        self.torch, self.module, self.notes = torch, loaded.module, loaded.notes
        schema = getattr(getattr(self.module, "forward", None), "schema", None)
        self.kinds = None
        if schema is not None:
            self.kinds = {a.name: str(a.type) for a in schema.arguments if a.name != "self"}
        self.wanted = wanted
        self.by_name = bool(names) and set(names) <= set(self.wanted)
        self.names = names

    def specs(self) -> list[tuple[str | None, list[int | None] | None]]:
        """Return dtype and shape of each input, as far as they are declared: they are not."""
        return [(None, None)] * len(self.names)

    def call(self, tensors: list[Any]) -> Any:
        """Run it."""
        if self.kinds is None:
            if self.by_name:
                return self.module(**dict(zip(self.names, tensors, strict=True)), **self.fixed)
            return self.module(*tensors, **self.fixed)
        if self.by_name:
            named = zip(self.names, tensors, strict=True)
            filled = {n: fill_argument(self.kinds[n], [t]) for n, t in named}
            return self.module(**filled, **self.fixed)
        left = list(tensors)
        given = []
        for name in self.wanted:
            if name in self.fixed:
                given.append(self.fixed[name])
                continue
            if not left:
                break
            given.append(fill_argument(self.kinds[name], left))
        if left:
            raise ValueError(f"forward takes fewer arguments: {self.kinds}")
        return self.module(*given)

    def list_places(self) -> Iterator[tuple[str, str, str]]:
        """Yield what it is, its name and its device, for each parameter and buffer."""
        for what, tensors in (
            ("parameter", self.module.named_parameters()),
            ("buffer", self.module.named_buffers()),
        ):
            for name, tensor in tensors:
                yield what, name, place(tensor.device)

    def random(self) -> set[str]:
        """Return the operations that draw numbers, where there is a graph that says so."""
        if self.kinds is None:
            return set()
        graph = self.module.graph.copy()
        self.torch._C._jit_pass_inline(graph)
        return {kind for kind in kinds_of(graph) if RANDOM.fullmatch(kind)}

    def run_watched(
        self, paths: list[str], tensors: list[Any], save: Callable[[str, int, Any], None]
    ) -> None:
        """Run it, and pass on the outputs of submodules."""
        if self.kinds is not None:
            return  # what is inside of a ScriptModule stays there

        def seen(path: str) -> Callable[[Any, Any, Any], None]:
            def hook(_module: Any, _given: Any, result: Any) -> None:
                for i, value in enumerate(flat(result)):
                    save(path, i, value)

            return hook

        parts = dict(self.module.named_modules())
        hooks = [parts[p].register_forward_hook(seen(p)) for p in paths if p in parts]
        try:
            self.call(tensors)
        finally:
            for hook in hooks:
                hook.remove()


class Program(Stateful):
    """An exported program."""

    def __init__(self, torch: Any, loaded: Any, names: list[str]) -> None:
        self.torch, self.program, self.notes = torch, loaded.program, loaded.notes
        self.module = loaded.module
        self.pytree: Any = importlib.import_module("torch.utils._pytree")
        kind = importlib.import_module("torch.export.graph_signature").InputKind.USER_INPUT
        self.arguments = [
            spec.arg for spec in self.program.graph_signature.input_specs if spec.kind == kind
        ]
        values = {n.name: n.meta.get("val") for n in self.program.graph.nodes}
        # What is fixed in the program has no input in a converted graph.
        self.slots = [a for a in self.arguments if not hasattr(a, "value")]
        self.values = [values.get(a.name) for a in self.slots]
        own = [a.name for a in self.slots]
        # Where in the graph's order each input of the program is.
        self.order = [names.index(n) for n in own] if set(own) == set(names) else [*range(len(own))]

    def specs(self) -> list[tuple[str | None, list[int | None] | None]]:
        """Return dtype and shape of each input: sizes that are free are None."""
        found: list[tuple[str | None, list[int | None] | None]] = []
        for value in self.values:
            if isinstance(value, self.torch.Tensor):
                sizes = [n if isinstance(n, int) else None for n in value.shape]
                found.append((plain_name(value.dtype), sizes))
            else:
                found.append(("float64" if "Float" in type(value).__name__ else "int64", []))
        return [found[self.order.index(i)] for i in range(len(found))]

    def call(self, tensors: list[Any]) -> Any:
        """Run it."""
        return self.through(self.module, tensors)

    def through(self, function: Callable[..., Any], tensors: list[Any]) -> Any:
        """Call a function as the program was called when it was exported."""
        if len(tensors) != len(self.slots):
            raise ValueError(f"the program takes another number of inputs: {len(self.slots)}")
        left = iter(zip(self.values, (tensors[i] for i in self.order), strict=True))
        leaves = []
        for argument in self.arguments:
            if hasattr(argument, "value"):
                leaves.append(argument.value)
                continue
            value, tensor = next(left)
            leaves.append(tensor if isinstance(value, self.torch.Tensor) else tensor.item())
        given, named = self.pytree.tree_unflatten(leaves, self.program.call_spec.in_spec)
        return function(*given, **named)

    def list_places(self) -> Iterator[tuple[str, str, str]]:
        """Yield what it is, its name and its device, for each parameter, buffer and constant."""
        parameters = set(self.program.graph_signature.parameters)
        for name, tensor in self.program.state_dict.items():
            yield "parameter" if name in parameters else "buffer", name, place(tensor.device)
        for name, value in self.program.constants.items():
            if isinstance(value, self.torch.Tensor):
                yield "buffer", name, place(value.device)

    def random(self) -> set[str]:
        """Return the operations that draw random numbers."""
        targets = {f"torch.ops.{n.target}" for n in self.program.graph.nodes if n.op != "output"}
        return {target for target in targets if RANDOM.fullmatch(target)}

    def run_watched(
        self, paths: list[str], tensors: list[Any], save: Callable[[str, int, Any], None]
    ) -> None:
        """Run it node by node, and pass on the outputs of the nodes."""
        wanted = set(paths)

        class Watch(self.torch.fx.Interpreter):  # type: ignore[misc, name-defined]
            def run_node(self, node: Any) -> Any:
                result = super().run_node(node)
                if node.name in wanted:
                    for i, value in enumerate(flat(result)):
                        save(node.name, i, value)
                return result

        given, named = self.through(lambda *a, **k: (a, k), tensors)
        leaves = self.pytree.tree_leaves((given, named))
        Watch(self.module).run(*leaves, enable_io_processing=False)


def fill_argument(kind: str, left: list[Any]) -> Any:
    """Return an argument of a TorchScript type, made of the first of the tensors that are left."""
    inside = re.fullmatch(r"(Optional|List|Tuple)\[(.*)\]|(.*)\?|(.*)\[\]|\((.*)\)", kind)
    if kind in ("int", "float", "bool", "number", "Scalar"):
        return left.pop(0).item()
    if inside is None:
        return left.pop(0)
    word, within, optional, many, several = inside.groups()
    if optional or word == "Optional":
        return fill_argument(optional or within, left)
    if several is not None or word == "Tuple":
        return tuple(fill_argument(part, left) for part in split(several or within))
    found = []
    while left:  # a list takes all that are left
        found.append(fill_argument(many or within, left))
    return found


def split(text: str) -> list[str]:
    """Split a list of types."""
    parts, depth = [""], 0
    for c in text:
        depth += (c in "[(") - (c in ")]")
        if c == "," and not depth:
            parts.append("")
        else:
            parts[-1] += c
    return [p.strip() for p in parts if p.strip()]


def flat(value: Any) -> Iterator[Any]:
    """Yield the leaves of what a module returns."""
    if value is None:
        return
    if isinstance(value, Mapping):
        for item in value.values():
            yield from flat(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from flat(item)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for part in dataclasses.fields(value):
            yield from flat(getattr(value, part.name))
    else:
        yield value


def kinds_of(block: Any) -> Iterator[str]:
    """Yield the operations of a graph of TorchScript's; a dropout that drops nothing is none."""
    for node in block.nodes():
        kind = node.kind()
        is_off = "dropout" in kind and [*node.inputs()][-1].toIValue() is False
        if not is_off:
            yield kind
        for inner in node.blocks():
            yield from kinds_of(inner)


def plain_name(dtype: Any) -> str:
    """Return numpy's name of a dtype."""
    return str(dtype).removeprefix("torch.")


def place(device: Any) -> str:
    """Return a device as placements spell it."""
    return "cpu" if device.type == "cpu" else f"{device.type}:{device.index or 0}"
