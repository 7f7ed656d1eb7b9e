"""Lower pickled modules: ``nn.Sequential`` of torch's own layers.

A module's forward is code that its file does not hold. That of a Sequential is known, and so are
those of torch's layers (`converter.lower.torch.layers`); any other class is not supported.
"""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from converter.lower.graph import Graph, Trace
from converter.lower.torch.context import Context
from converter.lower.torch.layers import IGNORED, LAYERS
from converter.lower.torch.mutable_tensors import Reference
from converter.lower.torch.program_values import ProgramValue
from converter.lower.torch.script.inputs import Arguments, Probe, UnknownArgument
from converter.lower.torch.script.interpreter import ScriptInterpreter
from converter.lower.torch.script.lowering import finish_graph, walks
from converter.lower.torch.script.op_calls import call_op
from converter.lower.torch.script.source import Function, Parameter, Source
from converter.lower.torch.script.values import UNKNOWN, Unknown
from converter.lower.unsupported import MISFITS, Unsupported, explain_misfit
from formats.core.bundle import Bundle, TensorSpec
from formats.errors import CorruptError, LimitError, UnsupportedError
from formats.torch.script_objects import Instance, Objects

SLOTS = ("_modules", "_parameters", "_buffers")
SEQUENCES = ("Sequential",)
WRAPPERS = ("DataParallel", "DistributedDataParallel", "OptimizedModule")  # one module inside
INNER = ("module", "_orig_mod")
HOOKS = (
    "_forward_hooks", "_forward_pre_hooks", "_forward_hooks_with_kwargs",
    "_forward_pre_hooks_with_kwargs", "_forward_hooks_always_called",
)  # fmt: skip
# Of wrappers: where they run.
WRAPPED = frozenset(("dim", "device_ids", "output_device", "src_device_obj", "class", "training"))
DEEPEST = 50  # Sequentials in Sequentials
NEWEST = 1 << 20  # version of ops: that of today
TRUST = (
    "With torch installed, trust=['module=path'] supplies it, "
    "or arch='package.module:factory' a new one"
)


@dataclass(slots=True)
class Modules:
    """The module tree of a pickle.

    Attributes:
        entries: Path -> class and plain attributes.
        children: Path -> names of the modules inside, in order.
        tensors: Path -> own name of a tensor -> its name among the bundle's weights.
        opaque: Path of an object that is neither plain nor a tensor -> its class.
    """

    entries: Mapping[str, Mapping[str, Any]]
    children: dict[str, list[str]]
    tensors: dict[str, dict[str, str]]
    opaque: Mapping[str, str]

    @classmethod
    def of(cls, bundle: Bundle) -> "Modules":
        """Return that of a bundle.

        Raises:
            UnsupportedError: Some of it was not kept.
            CorruptError: It is damaged.
        """
        content = bundle.topology.content if bundle.topology is not None else None
        found = content if isinstance(content, Mapping) else {}
        entries = {path: entry for path, entry in found.items() if isinstance(entry, dict)}
        if not entries:
            raise CorruptError("a module tree without modules", where="torch_modules")
        for left in bundle.metadata.left_out:
            if left.reason.startswith(("plain data past", "nests deeper")) or left.name == "…":
                raise UnsupportedError(f"not supported: modules of which {left.reason}")
        children: dict[str, list[str]] = {path: [] for path in entries}
        for path in entries:
            parent, _, name = path.rpartition(".")
            if path and parent in children:
                children[parent].append(name)
        tensors: dict[str, dict[str, str]] = {}
        for name, tensor in bundle.weights.items():
            parts = [p for p in tensor.origin.split("/") if p not in SLOTS]
            tensors.setdefault(".".join(parts[:-1]), {})[parts[-1]] = name
        return cls(entries, children, tensors, bundle.metadata.opaque)

    def root(self) -> str:
        """Return the path of the module that all others are in.

        Raises:
            UnsupportedError: There are several.
        """
        roots = [
            path for path in self.entries
            if not path or not any(parent in self.entries for parent in _above(path))
        ]  # fmt: skip
        if len(roots) > 1:
            named = ", ".join(repr(r) for r in roots[:5])
            raise UnsupportedError(
                f"not supported: {len(roots)} modules in one file: {named}",
                gaps=(("torch: several modules in one file", 1),),
            )
        return roots[0]


def _above(path: str) -> list[str]:
    """Return the paths of all that is around a module."""
    parts = path.split(".")
    return [".".join(parts[:i]) for i in range(len(parts))]


def lower_modules(bundle: Bundle, *, opset: int, inputs: Sequence[TensorSpec] = ()) -> Graph:
    """Return the graph of a pickled module.

    Args:
        bundle: The model.
        opset: Version of ONNX's operators.
        inputs: The input that the user declares, called ``input``: a pickle records no shapes.

    Raises:
        UnsupportedError: A layer's forward is not known, or does what we do not do.
        UsageError: The shape of the input must be said.
        CorruptError: It is damaged.
    """
    modules = Modules.of(bundle)
    root = modules.root()
    _check_classes(modules, root)
    forward = Function(
        "forward", (Parameter("self", "", None), Parameter("input", "Tensor", None)), [], "", ""
    )

    def walk(arguments: Arguments) -> Graph:
        op = Context(Graph("forward", opset), bundle.weights)
        objects = Objects(Instance("", {}, ""))
        interpreter = ScriptInterpreter(op, Source({}), objects, {}, NEWEST)
        (given,) = arguments.made(interpreter, forward)
        made = _Chain(interpreter, modules).module(root, given)
        if not interpreter.findings:
            arguments.unanswered([given])
        return finish_graph(interpreter, made, arguments, "")

    return walks(walk, inputs)


def _check_classes(modules: Modules, root: str) -> None:
    """Look for classes whose forward is not known.

    Raises:
        UnsupportedError: There are some; all are named.
    """
    gaps: dict[str, str] = {}
    seen = [root]
    while seen:
        path = seen.pop()
        kind, is_known = _kind(modules.entries[path])
        if is_known and kind in (*SEQUENCES, *WRAPPERS):
            seen += [_join(path, name) for name in modules.children[path]]
        elif not is_known or kind not in LAYERS:
            gaps.setdefault(str(modules.entries[path].get("class")), path or "(root)")
    if not gaps:
        return
    named = "; ".join(f"forward of class {cls}, at {path}" for cls, path in list(gaps.items())[:20])
    known = [c.rpartition(".")[2] for c in gaps if c.startswith("torch.nn.")]
    near = [m for k in known for m in difflib.get_close_matches(k, LAYERS, 1)]
    hint = f"Near names that are known: {', '.join(near)}" if near else TRUST
    raise UnsupportedError(
        f"not supported: {named}; its code is not in the file", hint=hint,
        gaps=tuple((f"forward of class {cls}", 1) for cls in gaps),
    )  # fmt: skip


def _kind(entry: Mapping[str, Any]) -> tuple[str, bool]:
    """Return a class' own name, and whether it is one of torch's."""
    cls = str(entry.get("class", ""))
    module, _, name = cls.rpartition(".")
    return name, module.startswith(("torch.nn.", "torch._dynamo.")) or module == "torch.nn"


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


class _Chain:
    """Builds the modules of a sequence."""

    def __init__(self, interpreter: ScriptInterpreter, modules: Modules) -> None:
        self.interpreter = interpreter
        self.modules = modules
        self.base = modules.root()  # what torch runs: within the wrappers around it

    def module(self, path: str, x: ProgramValue, depth: int = 0) -> ProgramValue:
        """Return what a module yields."""
        if depth > DEEPEST:
            raise LimitError(f"modules nested more than {DEEPEST} deep", where=path[:200])
        entry = self.modules.entries[path]
        kind, _ = _kind(entry)
        self.interpreter.at = f"{path or '(root)'} ({kind})"
        if isinstance(x, Unknown):
            return UNKNOWN
        try:
            self._check_hooks(path, entry)
            if kind in SEQUENCES or kind in WRAPPERS:
                return self._inside(path, entry, kind, x, depth)
            made = self._layer(path, entry, kind, x)
        except Unsupported as gap:
            self.interpreter.found(kind, str(gap))
            return UNKNOWN
        self._trace(path, kind, made)
        return made

    def _inside(
        self, path: str, entry: Mapping[str, Any], kind: str, x: ProgramValue, depth: int
    ) -> ProgramValue:
        names = self.modules.children[path]
        if kind in WRAPPERS:
            if len(names) != 1 or names[0] not in INNER:
                raise Unsupported(f"a wrapper around {len(names)} modules")
            allowed = WRAPPED
        else:
            allowed = frozenset()
        unknown = sorted(set(entry) - IGNORED - allowed)
        if unknown and kind not in WRAPPERS:
            raise Unsupported(f"attribute {unknown[0]}")
        for name in names:
            inside = _join(path, name)
            if kind in WRAPPERS and path == self.base:
                self.base = inside
            x = self.module(inside, x, depth + 1)
        return x

    def _trace(self, path: str, kind: str, made: ProgramValue) -> None:
        """Note which value a layer's output is: torch knows the layer by this path."""
        if isinstance(made, Reference):
            value = made.read()
            layer = path.removeprefix(f"{self.base}.") if path != self.base else ""
            trace = Trace(layer, kind, 0, value.name, value.stored)
            self.interpreter.op.graph.traces.append(trace)

    def _check_hooks(self, path: str, entry: Mapping[str, Any]) -> None:
        for hook in HOOKS:
            start = _join(path, hook)
            if entry.get(hook) or any(
                p == start or p.startswith(f"{start}.") for p in self.modules.opaque
            ):
                raise Unsupported(f"what hooks do ({hook})")

    def _opaque(self, path: str) -> list[str]:
        """Return attributes of a layer that are neither plain nor tensors."""
        start = f"{path}." if path else ""
        inside = (p.removeprefix(start) for p in self.modules.opaque if p.startswith(start))
        names = {p.partition(".")[0] for p in inside}
        return sorted(names - IGNORED - {"(root)", *self.modules.children[path]})

    def _layer(
        self, path: str, entry: Mapping[str, Any], kind: str, x: ProgramValue
    ) -> ProgramValue:
        row = LAYERS[kind]
        unknown = [*row.unknown(entry), *self._opaque(path)]
        if unknown:
            raise Unsupported(f"attribute {unknown[0]}")
        own = {
            name: Reference.to(self.interpreter.op.weight(tensor))
            for name, tensor in self.modules.tensors.get(path, {}).items()
        }

        def call(name: str, *args: ProgramValue, **kwargs: ProgramValue) -> ProgramValue:
            return call_op(self.interpreter, f"torch.{name}", list(args), kwargs)

        with self.interpreter.op.scope(path or kind):
            try:
                return row.handler(call, own, x, **row.known(entry))
            except MISFITS as e:
                if isinstance(x, Probe):
                    raise UnknownArgument(x.name, kind) from e
                raise Unsupported(explain_misfit(e)) from e
