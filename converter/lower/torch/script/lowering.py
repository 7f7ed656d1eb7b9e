"""Lower TorchScript archives: their source text is interpreted, and never executed."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from converter.lower.graph import Graph, needed
from converter.lower.torch.compound import Compound
from converter.lower.torch.context import Context
from converter.lower.torch.mutable_tensors import Reference, find_written
from converter.lower.torch.program_values import ProgramValue
from converter.lower.torch.script.fixed_sizes import Fixed
from converter.lower.torch.script.inputs import (
    ArgumentLearned,
    Arguments,
    UnknownArgument,
    flatten_outputs,
    spell_input,
)
from converter.lower.torch.script.interpreter import ScriptInterpreter
from converter.lower.torch.script.numbers import tensor_of
from converter.lower.torch.script.source import Source
from converter.lower.torch.script.states import MOST_PASSES, States
from converter.lower.torch.script.values import Callee, Raised, Stop, Unknown, leaves
from converter.lower.unsupported import Unsupported, report
from converter.lower.values import Value
from formats.core.bundle import Bundle, TensorSpec
from formats.core.storage import Span
from formats.errors import LimitError, UnsupportedError, UsageError
from formats.torch.script_objects import read_objects

Walked = TypeVar("Walked")
MOST_WALKS = 20  # each begins anew with one more size that the program itself says


def lower_script(
    bundle: Bundle, *, opset: int, inputs: Sequence[TensorSpec] = (), state: str = "drop"
) -> Graph:
    """Return the graph of a TorchScript archive's ``forward``.

    Args:
        bundle: The model.
        opset: Version of ONNX's operators.
        inputs: Inputs that the user declares: the archive records no shapes.
        state: ``io`` to make inputs and outputs of the attributes that ``forward`` assigns.

    Raises:
        UnsupportedError: It needs what we do not do; all of it is named.
        UsageError: The shape of an input must be said.
        CorruptError: It is damaged.
        LimitError: It asks for too much.
    """
    assert bundle.topology is not None
    content = bundle.topology.content
    assert isinstance(content, dict)
    source = Source({n: span for n, span in content.items() if isinstance(span, Span)})
    objects = read_objects(bundle.topology)
    names = {tensor.origin: name for name, tensor in bundle.weights.items()}
    states = States(objects, bundle.weights, names)
    for _ in range(MOST_PASSES):
        try:
            graph, interpreter = walks(
                lambda arguments: _interpret(bundle, source, states, arguments, opset), inputs
            )
        except UnsupportedError:
            if not states.settle():
                raise
            continue
        if state == "drop" or not states.revise(interpreter):
            return graph
    raise UnsupportedError("not supported: attributes that are of another kind after each run")


def walks(walk: Callable[[Arguments], Walked], inputs: Sequence[TensorSpec]) -> Walked:
    """Return what a walk of a program yields, repeated each time that it determines an input.

    Args:
        walk: Builds the graph from what is known of the arguments.
        inputs: Inputs that the user declares.

    Raises:
        UsageError: The shape of an input must be said.
        UnsupportedError: The program works for other sizes than it is given.
        LimitError: It asks for too much.
    """
    arguments = Arguments({spec.name: spec for spec in inputs})
    try:
        return _repeat(walk, arguments)
    except UnknownArgument as unknown:
        for texts, candidate in arguments.candidates():
            if _works(walk, candidate):
                raise arguments.question(unknown.name, unknown.op, texts) from unknown
        raise arguments.question(unknown.name, unknown.op, ()) from unknown


def _works(walk: Callable[[Arguments], Walked], arguments: Arguments) -> bool:
    """Return whether a graph can be built for these arguments."""
    try:
        _repeat(walk, arguments)
    except (UnknownArgument, UnsupportedError, UsageError, LimitError):
        return False
    return True


def _repeat(walk: Callable[[Arguments], Walked], arguments: Arguments) -> Walked:
    for _ in range(MOST_WALKS):
        try:
            return walk(arguments)
        except ArgumentLearned as learned:
            arguments.learned[learned.fact.spec.name] = learned.fact
        except Fixed as fixed:
            if fixed.name in arguments.fixed or fixed.name not in arguments.sizes:
                raise UnsupportedError(
                    f"not supported: the program works where {fixed.name} is {fixed.size} alone"
                ) from fixed
            arguments.fixed[fixed.name] = fixed.size
        except RecursionError as e:
            raise LimitError("a program that nests too deeply", where="forward") from e
    raise LimitError(f"a program that fixes more than {MOST_WALKS} sizes", where="forward")


def _interpret(
    bundle: Bundle, source: Source, states: States, arguments: Arguments, opset: int
) -> tuple[Graph, ScriptInterpreter]:
    op, objects = Context(Graph("forward", opset), bundle.weights), states.objects
    interpreter = ScriptInterpreter(
        op, source, objects, states.names, version_of(bundle), bundle.encodings
    )
    forward = interpreter.method(objects.root, "forward")
    if forward is None:
        methods = bundle.topology.summary.get("methods") if bundle.topology is not None else None
        has = f"; it has {', '.join(map(str, methods[:5]))}" if isinstance(methods, list) else ""
        raise UnsupportedError(f"not supported: a module without a forward{has}")
    given = arguments.made(interpreter, forward)
    tensors = {one.read().name: one for one in leaves(given) if isinstance(one, Reference)}
    states.seed(interpreter)
    made: ProgramValue = None
    try:
        made = interpreter.call(Callee(forward, objects.root), given, {})
    except Stop:
        if not interpreter.findings:
            arguments.unanswered(given)
            interpreter.found("forward", "a branch that nothing decides")
    except Raised as raised:
        interpreter.found("raise", f"the program raises {str(raised)[:200]!r} for these inputs")
    except Unsupported as gap:
        interpreter.found("forward", str(gap))
    if not interpreter.findings:
        arguments.unanswered(given)
    graph = finish_graph(interpreter, made, arguments, forward.returns, states)
    graph.overwritten += [name for name in find_written(tensors) if name in graph.inputs]
    return graph, interpreter


def finish_graph(
    interpreter: ScriptInterpreter, made: ProgramValue, arguments: Arguments, returns: str,
    states: States | None = None,
) -> Graph:  # fmt: skip
    """Return the graph of what a program returned, and of the states that it leaves.

    Raises:
        UnsupportedError: Something is not supported.
    """
    if any(storage.version != version for storage, version in interpreter.doubts):
        interpreter.at = "forward"
        interpreter.found("if", "a write to a tensor that two branches may share")
    _tell(interpreter, arguments)
    kept = [] if states is None else states.results(interpreter)
    graph = _with_outputs(interpreter, made, returns, kept)
    graph.notes += [*interpreter.notes, *_note_assumptions(graph, arguments)]
    if states is not None:
        graph.notes += states.notes()
        graph.unkept += states.unkept(interpreter)
    return graph


def version_of(bundle: Bundle) -> int:
    """Return the version of the ops that an archive records; the oldest where it records none."""
    found = bundle.metadata.recorded.get("archive_version", "0")
    return int(found) if found.isdigit() and len(found) < 6 else 0


def _tell(interpreter: ScriptInterpreter, arguments: Arguments) -> None:
    """Raise all findings as one error."""
    if not interpreter.findings:
        return
    hint = None
    if arguments.learned:
        said = [spell_input(t.spec) for t in arguments.learned.values()]
        hint = f"Sizes that are known may help: inputs={said}, with numbers for words"
    report(interpreter.findings, hint)


def _with_outputs(
    interpreter: ScriptInterpreter, made: ProgramValue, returns: str,
    kept: Sequence[tuple[str, ProgramValue]],
) -> Graph:  # fmt: skip
    op = interpreter.op
    leaves(made)  # not too many, and none in itself
    outputs = [(n, t) for n, t in flatten_outputs(made) if not isinstance(t, Unknown)]
    if not outputs:
        raise UnsupportedError(f"the program yields no tensor, but {returns or 'nothing'}")
    used = set(op.graph.inputs)
    for name, operand in (*outputs, *kept):
        value = operand.read() if isinstance(operand, Reference) else _number(op, operand)
        if isinstance(value, Compound):
            raise UnsupportedError("not supported: an output of complex or quantized numbers")
        while name in used:
            name += "_out"
        used.add(name)
        op.reserve([name])
        op.output(value, name)
    return needed(op.graph)


def _number(op: Context, operand: ProgramValue) -> Value:
    """Return a number as a tensor of the dtype that Python's own would have."""
    value = tensor_of(op, operand)
    return op.cast(value, "float64") if value.is_float else value


def _note_assumptions(graph: Graph, arguments: Arguments) -> list[str]:
    """Return what the graph's inputs and outputs are like for reasons that should be known."""
    notes = [
        f"taken to be {spell_input(fact.spec)}, as {fact.reason} says"
        for name, fact in arguments.learned.items()
        if name not in arguments.wanted
    ]
    notes += [
        f"size {name} is {size}: the program was traced with it, and keeps it in a reshape"
        for name, size in arguments.fixed.items()
    ]
    varying = {
        n for name in graph.inputs for n in graph.specs[name].shape[:1] if isinstance(n, str)
    }
    for name in graph.outputs[: len(graph.outputs) - len(graph.states)]:
        shape = graph.specs[name].shape
        if varying and len(shape) > 1 and all(isinstance(n, int) for n in shape):
            notes.append(
                f"{name} has the shape {list(shape)} for every batch: the program fixes it"
            )
    return notes
