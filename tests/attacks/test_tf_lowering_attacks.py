"""TensorFlow graphs that loop, grow, contradict themselves or were damaged, on their way to ONNX.

What is damaged in `test_tensorflow_attacks` is what the readers see; here the bytes are sound, and
what they say is not. Each graph converts or is refused in one sentence, and what converts is a
model that onnxruntime loads.
"""

import os
import random
import zipfile
from functools import cache, partial

import pytest
from attacks.arena import DEEP, ROUNDS, a_file, a_folder, size
from attacks.graphs import (
    BOOL,
    FLOAT,
    INT32,
    INT64,
    STRING,
    Made,
    const,
    damaged_graphs,
    floats,
    function,
    graph,
    packed,
    placeholder,
    shape,
    texts,
    typed,
    vector,
)
from attacks.mutate import damaged
from attacks.protos import num, run, tag
from attacks.sstables import bundle, entry, saved_model
from repository import FIXTURES

from converter.lower.tf.table import OPS

try:
    import onnxruntime
except ImportError:  # then nothing is loaded
    onnxruntime = None

OPERATIONS = ("onnx", "portable") if DEEP else ("onnx",)
LOADED = 20 << 20  # bytes of a model that onnxruntime is asked to load
MANY = size(2000, 100_000)
FAR = (1 << 63) - 1
X = placeholder("x", (2, 3))
T = {"T": typed(FLOAT)}


def meet(arena, attack):
    """Meet one graph; what converts is a model that onnxruntime loads, if that is there."""
    (outcome, *_) = arena.one(attack, OPERATIONS)
    assert outcome.code in (0, 1, 3, 4, 5), outcome  # 1: onnxruntime finds the graph invalid
    if outcome.kind == "ok" and onnxruntime is not None:
        path = arena.corners[0].root / "out" / "o.onnx"
        if path.stat().st_size > LOADED:
            return
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.log_severity_level = 4
        options.intra_op_num_threads = 1
        onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def op(name, kind, *inputs, **attributes):
    return Made(name, kind, list(inputs), {"T": typed(FLOAT), **attributes})


def call(name, target, *inputs, kind="PartitionedCall"):
    return Made(name, kind, list(inputs), {"f": run(10, run(1, target))})


def attribute(n):
    return num(3, n)


def truth(name="p"):
    return Made(name, "Placeholder", [], {"dtype": typed(BOOL), "shape": run(7, b"")})


# -- functions -----------------------------------------------------------------------------------


def doubling(depth):
    """Functions that each call the next one twice."""
    made = []
    for i in range(depth):
        nodes = [call("a", f"f{i + 1}", "v"), call("b", f"f{i + 1}", "a:output:0")]
        made.append(function(f"f{i}", ["v"], nodes, {"r": "b:output:0"}))
    last = function(f"f{depth}", ["v"], [op("n", "Neg", "v")], {"r": "n:y:0"})
    return graph([X, call("y", "f0", "x")], [*made, last])


def chain(depth):
    made = [
        function(f"f{i}", ["v"], [call("a", f"f{i + 1}", "v")], {"r": "a:output:0"})
        for i in range(depth)
    ]
    last = function(f"f{depth}", ["v"], [op("n", "Neg", "v")], {"r": "n:y:0"})
    return graph([X, call("y", "f0", "x")], [*made, last])


def one_function(nodes, results, takes=("v",), node=None):
    made = function("f", takes, nodes, results)
    return graph([X, node or call("y", "f", "x")], [made])


def branches(depth):
    """Conditionals in conditionals, both sides of each the next one."""
    made = []
    for i in range(depth):
        inner = Made("a", "If", ["p", "p"], {
            "then_branch": run(10, run(1, f"f{i + 1}")), "else_branch": run(10, run(1, f"f{i + 1}")),
        })  # fmt: skip
        made.append(function(f"f{i}", ["p"], [inner], {"r": "a:output:0"}, BOOL))
    last = function(f"f{depth}", ["p"], [op("n", "LogicalNot", "p")], {"r": "n:y:0"}, BOOL)
    node = Made("y", "If", ["p", "p"], {
        "then_branch": run(10, run(1, "f0")), "else_branch": run(10, run(1, "f0")),
    })  # fmt: skip
    return graph([truth(), node], [*made, last])


def while_(body, results, *, takes=("v",), cond=None, given=("x",), nodes=(X,)):
    """A loop, whose condition is a random one unless given."""
    cond = cond or [op("s", "Sum", "v", "axes"), const("axes", vector([0, 1])),
                    op("c", "Less", "s:output:0", "one"), const("one", floats([1.0], ()))]  # fmt: skip
    node = Made("y", "While", list(given), {
        "cond": run(10, run(1, "cond")), "body": run(10, run(1, "body")),
    })  # fmt: skip
    made = [
        function("cond", takes, cond, {"r": "c:z:0"}), function("body", takes, body, results)
    ]  # fmt: skip
    return graph([*nodes, node], made)


def nested_loops(depth):
    made = []
    for i in range(depth):
        cond = [op("s", "Sum", "v", "axes"), const("axes", vector([0, 1])),
                op("c", "Less", "s:output:0", "one"), const("one", floats([1.0], ()))]  # fmt: skip
        made.append(function(f"c{i}", ["v"], cond, {"r": "c:z:0"}))
        inner = [op("a", "Neg", "v")] if i == depth - 1 else [Made("a", "While", ["v"], {
            "cond": run(10, run(1, f"c{i + 1}")), "body": run(10, run(1, f"b{i + 1}")),
        })]  # fmt: skip
        out = "a:y:0" if i == depth - 1 else "a:output:0"
        made.append(function(f"b{i}", ["v"], inner, {"r": out}))
    node = Made("y", "While", ["x"], {"cond": run(10, run(1, "c0")), "body": run(10, run(1, "b0"))})
    return graph([X, node], made)


def grown(axis):
    return [const("axis", vector([axis], sizes=())),
            Made("d", "ConcatV2", ["v", "v", "axis"], {"N": attribute(2), **T})]  # fmt: skip


def cases(count):
    last = function("f", ["v"], [op("n", "Neg", "v")], {"r": "n:y:0"})
    branches = run(1, run(9, run(1, "f")) * count)
    i = placeholder("i", (), INT32)
    return graph([X, i, Made("y", "Case", ["i", "x"], {"branches": branches})], [last])


# fmt: off
FUNCTIONS = {
    "2**60 calls": lambda: doubling(60),
    "2**20 calls": lambda: doubling(20),
    "calls 5000 deep": lambda: chain(5000),
    "calls 90 deep": lambda: chain(90),
    "a function that calls itself": lambda: one_function([call("a", "f", "v")], {"r": "a:output:0"}),
    "a function that is called by its name and calls itself": lambda: one_function([Made("a", "f", ["v"])], {"r": "a:r:0"}, node=Made("y", "f", ["x"])),
    "a function that is not there": lambda: graph([X, call("y", "nowhere", "x")], [function("f", ["v"], [], {"r": "v"})]),
    "no function for a call": lambda: graph([X, Made("y", "PartitionedCall", ["x"])]),
    "a number for a function": lambda: graph([X, Made("y", "PartitionedCall", ["x"], {"f": num(3, 7)})]),
    "too many arguments": lambda: one_function([], {"r": "v"}, node=call("y", "f", "x", "x", "x")),
    "too few arguments": lambda: one_function([], {"r": "v"}, takes=("v", "w", "z")),
    "two arguments of one name": lambda: one_function([], {"r": "v"}, takes=("v", "v"), node=call("y", "f", "x", "x")),
    "a result that is not there": lambda: one_function([], {"r": "nothing:y:0"}),
    "a result of a port that is not there": lambda: one_function([op("n", "Neg", "v")], {"r": "n:y:7"}),
    "a result of an output that is not there": lambda: one_function([op("n", "Neg", "v")], {"r": "n:what:0"}),
    "a result in a circle": lambda: one_function([op("n", "Neg", "m:y:0"), op("m", "Neg", "n:y:0")], {"r": "n:y:0"}),
    "a function of no name": lambda: graph([X, call("y", "", "x")], [function("", ["v"], [], {"r": "v"})]),
    "very many results": lambda: one_function([], {f"r{i}": "v" for i in range(MANY)}),
    "very many functions": lambda: graph([X, call("y", "f0", "x")], [function(f"f{i}", ["v"], [], {"r": "v"}) for i in range(MANY)]),
    "conditionals 60 deep": lambda: branches(60),
    "conditionals 12 deep": lambda: branches(12),
    "conditionals of other arity": lambda: graph([X, truth(), Made("y", "If", ["p", "x"], {"then_branch": run(10, run(1, "f")), "else_branch": run(10, run(1, "g"))})],
        [function("f", ["v"], [], {"r": "v"}), function("g", ["v"], [], {"r": "v", "s": "v"})]),
    "conditionals of other dtypes": lambda: graph([X, truth(), Made("y", "If", ["p", "x"], {"then_branch": run(10, run(1, "f")), "else_branch": run(10, run(1, "g"))})],
        [function("f", ["v"], [], {"r": "v"}), function("g", ["v"], [Made("c", "Cast", ["v"], {"DstT": typed(INT32)})], {"r": "c:y:0"})]),
    "conditionals of other ranks": lambda: graph([X, truth(), Made("y", "If", ["p", "x"], {"then_branch": run(10, run(1, "f")), "else_branch": run(10, run(1, "g"))})],
        [function("f", ["v"], [], {"r": "v"}), function("g", ["v"], [const("c", floats([1.0], ()))], {"r": "c:output:0"})]),
    "a condition of text": lambda: graph([X, const("p", texts(1)), Made("y", "If", ["p", "x"], {"then_branch": run(10, run(1, "f")), "else_branch": run(10, run(1, "f"))})], [function("f", ["v"], [], {"r": "v"})]),
    "cases without number": lambda: cases(size(50, 2000)),
    "no cases": lambda: cases(0),
    "loops 60 deep": lambda: nested_loops(60),
    "loops 6 deep": lambda: nested_loops(6),
    "a loop that grows": lambda: while_(grown(0), {"r": "d:output:0"}),
    "a loop that never settles": lambda: while_([*grown(0), const("a2", vector([1], sizes=())), Made("e", "ConcatV2", ["d:output:0", "d:output:0", "a2"], {"N": attribute(2), **T})], {"r": "e:output:0"}),
    "a loop of other arity": lambda: while_([op("n", "Neg", "v")], {"r": "n:y:0", "s": "n:y:0"}),
    "a loop of nothing": lambda: while_([], {}),
    "a loop over nothing": lambda: while_([], {}, takes=(), given=(), cond=[const("c", num(1, BOOL) + run(2, b"") + num(11, 1))]),
    "a loop of another dtype": lambda: while_([Made("c", "Cast", ["v"], {"DstT": typed(INT32)})], {"r": "c:y:0"}),
    "a loop of another rank": lambda: while_([const("d", vector([0], sizes=())), op("e", "ExpandDims", "v", "d:output:0")], {"r": "e:output:0"}),
    "a loop whose condition is a matrix": lambda: while_([op("n", "Neg", "v")], {"r": "n:y:0"}, cond=[op("c", "Less", "v", "v")]),
    "a loop whose condition is itself": lambda: while_([op("n", "Neg", "v")], {"r": "n:y:0"}, cond=[op("c", "Less", "c:z:0", "c:z:0")]),
    "a loop whose arguments go round": lambda: while_([op("n", "Identity", "n:output:0")], {"r": "n:output:0"}),
    "a loop of an identity of nothing": lambda: while_([Made("n", "Identity", [], T)], {"r": "n:output:0"}),
    "a loop whose condition yields nothing": lambda: graph([X, Made("y", "While", ["x"], {"cond": run(10, run(1, "c")), "body": run(10, run(1, "b"))})], [function("c", ["v"], [], {}), function("b", ["v"], [], {"r": "v"})]),
}
# fmt: on


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(arena, name):
    meet(arena, a_file(name, "m.pb", FUNCTIONS[name]()))


# -- edges ---------------------------------------------------------------------------------------


def long_chain(count, kind="Neg"):
    nodes = [op(f"n{i}", kind, f"n{i - 1}" if i else "x") for i in range(count)]
    return graph([X, *nodes])


def named(name):
    return graph([X, op(name, "Neg", "x"), op("y", "Neg", name)])


# fmt: off
EDGES = {
    "a node that reads itself": lambda: graph([X, op("y", "Add", "y", "x"), op("z", "Neg", "y")]),
    "a circle": lambda: graph([X, op("a", "Add", "c", "x"), op("b", "Neg", "a"), op("c", "Neg", "b"), op("y", "Neg", "c")]),
    "a circle of controls": lambda: graph([X, op("a", "Neg", "x", "^b"), op("b", "Neg", "x", "^a"), op("y", "Add", "a", "b")]),
    "a node that controls itself": lambda: graph([X, op("y", "Neg", "x", "^y")]),
    "what is not there": lambda: graph([X, op("y", "Neg", "nothing")]),
    "a control that is not there": lambda: graph([X, op("y", "Neg", "x", "^nothing")]),
    "a port that is not there": lambda: graph([X, op("y", "Neg", "x:9")]),
    "port 10**30": lambda: graph([X, op("y", "Neg", "x:" + "9" * 30)]),
    "port of 5000 digits": lambda: graph([X, op("y", "Neg", "x:" + "9" * 5000)]),
    "port -1": lambda: graph([X, op("y", "Neg", "x:-1")]),
    "port of other digits": lambda: graph([X, op("y", "Neg", "x:\u0663"), op("z", "Neg", "x:\u00b2")]),
    "an input of no name": lambda: graph([X, op("y", "Neg", "")]),
    "a control of no name": lambda: graph([X, op("y", "Neg", "x", "^")]),
    "no inputs": lambda: graph([X, op("y", "Neg")]),
    "too many inputs": lambda: graph([X, op("y", "Neg", *["x"] * MANY)]),
    "a sum of very many": lambda: graph([X, Made("y", "AddN", ["x"] * MANY, {"N": attribute(MANY), **T})]),
    "a concat of very many": lambda: graph([X, const("a", vector([0], sizes=())), Made("y", "ConcatV2", [*["x"] * MANY, "a"], {"N": attribute(MANY), **T})]),
    "a chain": lambda: long_chain(size(3000, 100_000)),
    "very many outputs": lambda: graph([X, *(op(f"y{i}", "Neg", "x") for i in range(size(1000, 20_000)))]),
    "very many inputs": lambda: graph([*(placeholder(f"x{i}", (1,)) for i in range(size(500, 20_000))), Made("y", "AddN", [f"x{i}" for i in range(size(500, 20_000))], {"N": attribute(size(500, 20_000)), **T})]),
    "two nodes of one name": lambda: graph([X, op("y", "Neg", "x"), op("y", "Abs", "x"), op("z", "Neg", "y")]),
    "an input of an output's name": lambda: graph([X, placeholder("y:1", (2, 3)), op("y", "Add", "x", "y:1")]),
    "no graph": lambda: graph([X]),
    "only numbers": lambda: graph([const("y", floats([1.0]))]),
    "a name with newlines": lambda: named("a\n\x1b[2Jb"),
    "a name with a NUL": lambda: named("a\0b"),
    "a name of slashes": lambda: named("/" * 1000),
    "a name of dots": lambda: named("../../escaped"),
    "no name": lambda: named(""),
    "a name of colons": lambda: named("a:b:c"),
    "a name like a control": lambda: named("^x"),
    "a name of 10**6 letters": lambda: named("n" * 1_000_000),
    "names like ours": lambda: graph([X, op("y/Neg", "Neg", "x"), op("const", "Neg", "y/Neg"), op("y", "Neg", "const"), op("output/y", "Neg", "y")]),
    "an output that is an input": lambda: graph([X, op("y", "Identity", "x")]),
    "a placeholder that reads": lambda: graph([X, Made("p", "Placeholder", ["y"], dict(X.attributes)), op("y", "Neg", "p")]),
    "an argument in a graph": lambda: graph([X, Made("a", "_Arg", [], {"T": typed(FLOAT), "index": attribute(0)}), op("y", "Add", "a", "x")]),
}
# fmt: on


@pytest.mark.parametrize("name", EDGES)
def test_edges(arena, name):
    meet(arena, a_file(name, "m.pb", EDGES[name]()))


# -- frames --------------------------------------------------------------------------------------


def enter(name, frame, given="x"):
    return Made(name, "Enter", [given], {"frame_name": run(2, frame), **T})


def frame(name="f", given="x", end="", **changed):
    """The nodes of a loop of TensorFlow 1; those that are changed to None are left out."""
    e = end or name
    nodes = {
        "enter": enter(f"{e}/enter", name, given),
        "merge": Made(f"{e}/merge", "Merge", [f"{e}/enter", f"{e}/next"], {"N": attribute(2), **T}),
        "axes": const(f"{e}/axes", vector([0, 1])),
        "sum": op(f"{e}/sum", "Sum", f"{e}/merge", f"{e}/axes"),
        "less": op(f"{e}/less", "Less", f"{e}/sum", f"{e}/sum"),
        "cond": Made(f"{e}/cond", "LoopCond", [f"{e}/less"]),
        "switch": op(f"{e}/switch", "Switch", f"{e}/merge", f"{e}/cond"),
        "exit": op(f"{e}/exit", "Exit", f"{e}/switch"),
        "round": op(f"{e}/round", "Neg", f"{e}/switch:1"),
        "next": op(f"{e}/next", "NextIteration", f"{e}/round"),
    }
    nodes |= changed
    return [node for node in nodes.values() if node is not None]


def framed(**changed):
    return graph([X, *frame(**changed), op("y", "Neg", "f/exit")])


def merged(*inputs, more=()):
    return graph([X, truth(), *more, Made("m", "Merge", list(inputs), {"N": attribute(len(inputs)), **T}), op("y", "Neg", "m")])  # fmt: skip


def deep_switches(depth):
    """Conditionals of TensorFlow 1 in conditionals, each with a condition of its own."""
    nodes, last = [X], "x"
    for i in range(depth):
        nodes += [truth(f"p{i}"), op(f"s{i}", "Switch", last, f"p{i}")]
        last = f"s{i}:1"
    last = f"s{depth - 1}:1"
    for i in reversed(range(depth)):
        other = op(f"n{i}", "Neg", f"s{i}")
        nodes += [other, Made(f"m{i}", "Merge", [f"n{i}", last], {"N": attribute(2), **T})]
        last = f"m{i}"
    return graph([*nodes, op("y", "Neg", last)])


# fmt: off
FRAMES = {
    "a sound one": lambda: framed(),
    "two of one name": lambda: graph([X, *frame("f"), *frame("f", "f/exit", "g"), op("y", "Neg", "g/exit")]),
    "one in another": lambda: graph([X, *frame("f", round=op("f/round", "Neg", "g/exit")), *frame("g", "f/switch:1"), op("y", "Neg", "f/exit")]),
    "in each other": lambda: graph([X, *frame("f", "g/switch:1"), *frame("g", "f/switch:1"), op("y", "Add", "f/exit", "g/exit")]),
    "an exit into its own enter": lambda: graph([X, *frame("f", "f/exit"), op("y", "Neg", "f/exit")]),
    "a node of two frames": lambda: graph([X, *frame("f"), *frame("g"), op("both", "Add", "f/switch:1", "g/switch:1"), op("e", "Exit", "both"), op("y", "Neg", "e")]),
    "a node inside that is read outside": lambda: graph([X, *frame("f"), op("y", "Add", "f/round", "f/exit")]),
    "a switch of a switch": lambda: framed(round=op("f/round", "Switch", "f/switch:1", "f/cond")),
    "an enter of nothing": lambda: framed(enter=Made("f/enter", "Enter", [], {"frame_name": run(2, "f"), **T})),
    "a switch of one input": lambda: framed(switch=op("f/switch", "Switch", "f/merge")),
    "an exit of nothing": lambda: framed(exit=Made("f/exit", "Exit", [], T)),
    "a condition of nothing": lambda: framed(cond=Made("f/cond", "LoopCond")),
    "a next of nothing": lambda: framed(next=Made("f/next", "NextIteration", [], T)),
    "an identity round and round": lambda: framed(round=op("f/round", "Identity", "f/round")),
    "two conditions": lambda: graph([X, *frame("f"), Made("c2", "LoopCond", ["f/less"]), op("y", "Neg", "f/exit")]),
    "a frame name of another kind": lambda: framed(enter=Made("f/enter", "Enter", ["x"], {"frame_name": num(3, 1), **T})),
    "a frame name that is a list": lambda: framed(enter=Made("f/enter", "Enter", ["x"], {"frame_name": run(1, run(2, "f")), **T})),
    "a merge of three": lambda: framed(merge=Made("f/merge", "Merge", ["f/enter", "f/next", "x"], {"N": attribute(3), **T})),
    "a merge of nexts": lambda: framed(merge=Made("f/merge", "Merge", ["f/next", "f/next"], {"N": attribute(2), **T})),
    "frames 50 deep": lambda: graph([X, *(n for i in range(50) for n in frame(f"f{i}", "x" if not i else f"f{i - 1}/switch:1", round=op(f"f{i}/round", "Neg", f"f{i + 1}/exit" if i < 49 else f"f{i}/switch:1"))), op("y", "Neg", "f0/exit")]),
    "very many frames": lambda: graph([X, *(n for i in range(size(30, 1000)) for n in frame(f"f{i}", "x")), *(op(f"y{i}", "Neg", f"f{i}/exit") for i in range(size(30, 1000)))]),
    "very many frames, one behind another": lambda: graph([X, *(n for i in range(size(30, 1000)) for n in frame(f"f{i}", f"f{i - 1}/exit" if i else "x"))]),
    **{f"without its {part}": lambda part=part: framed(**{part: None}) for part in ("enter", "merge", "cond", "switch", "exit", "round", "next", "less", "axes")},
    "a merge of nothing": lambda: merged(),
    "a merge of one": lambda: merged("x"),
    "a merge of what has no condition": lambda: merged("x", "x"),
    "a merge of three sides": lambda: merged("s", "s:1", "x", more=[op("s", "Switch", "x", "p")]),
    "a merge of one side twice": lambda: merged("s", "s", more=[op("s", "Switch", "x", "p")]),
    "a merge of other dtypes": lambda: merged("s", "c", more=[op("s", "Switch", "x", "p"), Made("c", "Cast", ["s:1"], {"DstT": typed(INT32)})]),
    "a merge of other ranks": lambda: merged("s", "c", more=[op("s", "Switch", "x", "p"), const("ax", vector([0, 1])), op("c", "Sum", "s:1", "ax")]),
    "a switch that is its own condition": lambda: graph([X, op("s", "Switch", "x", "s"), op("y", "Neg", "s")]),
    "a switch by floats": lambda: graph([X, op("s", "Switch", "x", "x"), op("y", "Neg", "s:1")]),
    "one side of a switch": lambda: graph([X, truth(), op("s", "Switch", "x", "p"), op("y", "Neg", "s:1")]),
    "a dead end": lambda: graph([X, const("p", num(1, BOOL) + run(2, b"") + num(11, 0)), op("s", "Switch", "x", "p"), op("y", "Neg", "s:1")]),
    "switches 50 deep": lambda: deep_switches(50),
    "switches without number": lambda: deep_switches(size(100, 3000)),
}
# fmt: on


@pytest.mark.parametrize("name", FRAMES)
def test_frames(arena, name):
    meet(arena, a_file(name, "m.pb", FRAMES[name]()))


# -- numbers -------------------------------------------------------------------------------------


def huge(sizes, kind=FLOAT):
    """A constant of one number that stands for many."""
    value = tag(5, 5) + bytes(4) if kind == FLOAT else num(7, 1)
    return num(1, kind) + run(2, shape(sizes)) + value


def ints(kind, numbers, *, behind=(), at=1, of=INT32, **attributes):
    """An op whose other inputs are constants of integers."""
    names = [f"c{i}" for i in range(len(numbers))]
    given = [*names[: at - 1], "x", *names[at - 1 :]] if at else names
    made = [const(n, vector(v, of, None if isinstance(v, list) else ())
                  if isinstance(v, list) else vector([v], of, ()))
            for n, v in zip(names, numbers, strict=True)]  # fmt: skip
    return graph([X, *behind, *made, Made("y", kind, given, {**T, **attributes})])


def sizes_of_sizes(kind, depth):
    """Arithmetic on the sizes of an input, of which only the names are known."""
    nodes = [placeholder("x", (-1, -1, -1)), Made("s", "Shape", ["x"], {**T, "out_type": typed(INT32)}),
             const("t", vector([1, 2, 0]))]  # fmt: skip
    last = "s"
    for i in range(depth):
        nodes.append(Made(f"g{i}", "Gather", [last, "t"], {}))
        nodes.append(Made(f"m{i}", kind, [last, f"g{i}"], {"T": typed(INT32)}))
        last = f"m{i}"
    return graph([*nodes, Made("y", "Fill", [last, "v"], T), const("v", floats([1.0], ()))])


def list_of(count):
    """A TensorList of so many elements."""
    nodes = [const("e", vector([2])), const("n", vector([count], sizes=())),
             Made("l", "TensorListReserve", ["e", "n"], {"element_dtype": typed(FLOAT), "shape_type": typed(INT32)}),
             Made("y", "TensorListStack", ["l", "e"], {"element_dtype": typed(FLOAT), "num_elements": attribute(count)})]  # fmt: skip
    return graph([X, *nodes, op("z", "Neg", "x")])


def array_of(count):
    nodes = [const("n", vector([count], sizes=())), const("f", floats([0.0], ())),
             Made("a", "TensorArrayV3", ["n"], {"dtype": typed(FLOAT), "element_shape": run(7, shape((3,)))}),
             const("i", vector([0], sizes=())), Made("r", "TensorArrayReadV3", ["a", "i", "a:1"], {"dtype": typed(FLOAT)})]  # fmt: skip
    return graph([X, *nodes, op("y", "Add", "x", "r")])


def table_of(count):
    nodes = [const("k", texts(count, b"k")), const("v", vector([1] * count, INT64)), placeholder("w", (3,), STRING),
             const("d", vector([-1], INT64, ())),
             Made("t", "HashTableV2", [], {"key_dtype": typed(STRING), "value_dtype": typed(INT64), "shared_name": run(2, "t")}),
             Made("init", "LookupTableImportV2", ["t", "k", "v"], {"Tin": typed(STRING), "Tout": typed(INT64)}),
             Made("y", "LookupTableFindV2", ["t", "w", "d"], {"Tin": typed(STRING), "Tout": typed(INT64)})]  # fmt: skip
    return graph(nodes)


def equation(text, count=2):
    return graph([X, Made("y", "Einsum", ["x"] * count, {"equation": run(2, text), "N": attribute(count), **T})])  # fmt: skip


# fmt: off
VALUES = {
    "fill 2**40": lambda: graph([X, const("s", vector([1 << 40], INT64)), const("v", floats([1.0], ())), op("f", "Fill", "s", "v"), op("y", "Add", "x", "f")]),
    "fill 2**60 behind a reduction": lambda: graph([X, const("s", vector([1 << 30, 1 << 30], INT64)), const("v", floats([1.0], ())), op("f", "Fill", "s", "v"), const("a", vector([0, 1])), op("r", "Sum", "f", "a"), op("y", "Add", "x", "r")]),
    "fill -1": lambda: graph([X, const("s", vector([-1])), const("v", floats([1.0], ())), op("y", "Fill", "s", "v")]),
    "a constant of 2**40": lambda: graph([X, const("c", huge((1 << 40,))), op("y", "Add", "x", "c")]),
    "a constant of 2**40 for axes": lambda: graph([X, const("c", huge((1 << 40,), INT32)), op("y", "Sum", "x", "c")]),
    "a constant of 2**24 for a shape": lambda: graph([X, const("c", huge((1 << 24,), INT32)), op("y", "Reshape", "x", "c")]),
    "a constant of 2**16 for a shape": lambda: graph([X, const("c", huge((1 << 16,), INT32)), op("y", "Reshape", "x", "c")]),
    "a constant of 10**6 strings": lambda: graph([X, const("c", num(1, STRING) + run(2, shape((1_000_000,))) + run(8, b"x")), Made("y", "Shape", ["c"], {"T": typed(STRING)}), op("z", "Neg", "x")]),
    "a sum of constants of 2**40": lambda: graph([X, const("c", huge((1 << 40,))), const("a", vector([0])), op("r", "Sum", "c", "a"), op("y", "Add", "x", "r")]),
    "reshape to 2**62": lambda: ints("Reshape", [[1 << 31, 1 << 31]], of=INT64),
    "reshape to -1 -1": lambda: ints("Reshape", [[-1, -1]]),
    "reshape to -2": lambda: ints("Reshape", [[-2, 3]]),
    "reshape to -2**63": lambda: ints("Reshape", [[-FAR - 1]], of=INT64),
    "reshape by floats": lambda: graph([X, const("s", floats([2.0, 3.0])), op("y", "Reshape", "x", "s")]),
    "reshape by NaN": lambda: graph([X, const("s", floats([float("nan"), float("inf")])), op("y", "Reshape", "x", "s")]),
    "reshape by a matrix": lambda: graph([X, const("s", vector([2, 3, 1, 1], INT32, (2, 2))), op("y", "Reshape", "x", "s")]),
    "reshape to 1000 axes": lambda: ints("Reshape", [[1] * 1000 + [6]]),
    "axis 2**63 - 1": lambda: ints("Sum", [[FAR]], of=INT64),
    "axis -2**63": lambda: ints("Sum", [[-FAR - 1]], of=INT64),
    "axes twice": lambda: ints("Sum", [[0, 0, -2]]),
    "axis of expansion": lambda: ints("ExpandDims", [1 << 30]),
    "axis of a concat": lambda: graph([X, const("a", vector([-9], sizes=())), Made("y", "ConcatV2", ["x", "x", "a"], {"N": attribute(2), **T})]),
    "axis of a pack": lambda: graph([X, Made("y", "Pack", ["x", "x"], {"axis": attribute(-FAR), "N": attribute(2), **T})]),
    "pads of 2**62": lambda: graph([X, const("p", vector([1 << 62, 1, 1, 1 << 62], INT64, (2, 2))), op("y", "Pad", "x", "p")]),
    "pads of 2**30": lambda: graph([X, const("p", vector([1 << 30, 1, 1, 1 << 30], INT32, (2, 2))), op("y", "Pad", "x", "p")]),
    "pads of -5": lambda: graph([X, const("p", vector([-5, 0, 0, -5], INT32, (2, 2))), op("y", "Pad", "x", "p")]),
    "pads of one row": lambda: graph([X, const("p", vector([1, 1], INT32, (1, 2))), op("y", "Pad", "x", "p")]),
    "tiles of 2**40": lambda: ints("Tile", [[1 << 40, 1 << 40]], of=INT64),
    "tiles of -1": lambda: ints("Tile", [[-1, 2]]),
    "tiles of one": lambda: ints("Tile", [[2]]),
    "a range of 2**60": lambda: ints("Range", [0, 1 << 60, 1], at=0, of=INT64, Tidx=typed(INT64)),
    "a range by 0": lambda: ints("Range", [0, 5, 0], at=0),
    "a range of NaN": lambda: graph([X, *(const(f"c{i}", floats([v], ())) for i, v in enumerate((0.0, float("nan"), 1.0))), Made("y", "Range", ["c0", "c1", "c2"], {"Tidx": typed(FLOAT)})]),
    "a range of inf": lambda: graph([X, *(const(f"c{i}", floats([v], ())) for i, v in enumerate((0.0, float("inf"), 1.0))), Made("y", "Range", ["c0", "c1", "c2"], {"Tidx": typed(FLOAT)})]),
    "a linspace of 2**40": lambda: graph([X, const("a", floats([0.0], ())), const("b", floats([1.0], ())), const("n", vector([1 << 40], INT64, ())), op("y", "LinSpace", "a", "b", "n")]),
    "a linspace of -1": lambda: graph([X, const("a", floats([0.0], ())), const("b", floats([1.0], ())), const("n", vector([-1], INT64, ())), op("y", "LinSpace", "a", "b", "n")]),
    "a one-hot of 2**60": lambda: graph([placeholder("i", (3,), INT64), const("d", vector([1 << 60], INT64, ())), const("a", floats([1.0], ())), const("b", floats([0.0], ())), Made("y", "OneHot", ["i", "d", "a", "b"], {"axis": attribute(-1), **T})]),
    "a one-hot of axis 10**9": lambda: graph([placeholder("i", (3,), INT64), const("d", vector([4])), const("a", floats([1.0], ())), const("b", floats([0.0], ())), Made("y", "OneHot", ["i", "d", "a", "b"], {"axis": attribute(10**9), **T})]),
    "an eye of 2**40": lambda: graph([X, const("s", vector([1 << 40], INT64)), const("v", floats([1.0], ())), op("f", "Fill", "s", "v"), op("y", "MatrixDiag", "f")]),
    "unpack 10**9": lambda: graph([X, Made("y", "Unpack", ["x"], {"num": attribute(10**9), **T})]),
    "unpack -1": lambda: graph([X, Made("y", "Unpack", ["x"], {"num": attribute(-1), **T})]),
    "split 10**9": lambda: graph([X, const("a", vector([0], sizes=())), Made("y", "Split", ["a", "x"], {"num_split": attribute(10**9), **T})]),
    "split 0": lambda: graph([X, const("a", vector([0], sizes=())), Made("y", "Split", ["a", "x"], {"num_split": attribute(0), **T})]),
    "split by sizes of 2**62": lambda: graph([X, const("s", vector([1 << 62, 1 << 62, 4], INT64)), const("a", vector([0], sizes=())), Made("y", "SplitV", ["x", "s", "a"], {"num_split": attribute(3), **T})]),
    "split by -1 -1": lambda: graph([X, const("s", vector([-1, -1])), const("a", vector([0], sizes=())), Made("y", "SplitV", ["x", "s", "a"], {"num_split": attribute(2), **T})]),
    "a slice from 2**62": lambda: ints("Slice", [[1 << 62, -(1 << 62)], [FAR, -FAR]], of=INT64, Index=typed(INT64)),
    "a strided slice of extremes": lambda: ints("StridedSlice", [[FAR, -FAR - 1], [-FAR - 1, FAR], [-FAR - 1, FAR]], of=INT64, Index=typed(INT64)),
    "a strided slice by 0": lambda: ints("StridedSlice", [[0], [1], [0]]),
    "a strided slice of masks": lambda: ints("StridedSlice", [[0], [1], [1]], begin_mask=attribute(FAR), ellipsis_mask=attribute(-1), new_axis_mask=attribute(FAR), shrink_axis_mask=attribute(-FAR)),
    "a strided slice of new axes": lambda: ints("StridedSlice", [[0] * 60, [1] * 60, [1] * 60], new_axis_mask=attribute((1 << 60) - 1)),
    "a strided slice of 10**5": lambda: ints("StridedSlice", [[0] * 100_000, [1] * 100_000, [1] * 100_000]),
    "a transpose of 9": lambda: ints("Transpose", [[9, 0]]),
    "a transpose of one axis twice": lambda: ints("Transpose", [[0, 0]]),
    "a gather of 2**62": lambda: ints("GatherV2", [[FAR, -FAR], 0], of=INT64),
    "a gather of batches": lambda: ints("GatherV2", [[0], 0], batch_dims=attribute(-FAR)),
    "broadcast to 2**62": lambda: ints("BroadcastTo", [[1 << 30, 1 << 30, 2, 3]], of=INT64),
    "top 2**40": lambda: ints("TopKV2", [1 << 30]),
    "top -1": lambda: ints("TopKV2", [-1]),
    "a resize to 2**30": lambda: graph([placeholder("x", (1, 4, 4, 1)), const("s", vector([1 << 30, 1 << 30])), op("y", "ResizeBilinear", "x", "s")]),
    "a resize to -4": lambda: graph([placeholder("x", (1, 4, 4, 1)), const("s", vector([-4, 0])), op("y", "ResizeBilinear", "x", "s")]),
    "an area of 10**5": lambda: graph([placeholder("x", (1, 4, 4, 1)), const("s", vector([100_000, 100_000])), op("y", "ResizeArea", "x", "s")]),
    "a cubic of 10**6": lambda: graph([placeholder("x", (1, 4, 4, 1)), const("s", vector([size(1000, 1_000_000), 3])), op("y", "ResizeBicubic", "x", "s")]),
    "crops of 2**30": lambda: graph([placeholder("x", (1, 4, 4, 1)), placeholder("b", (3, 4)), placeholder("i", (3,), INT32), const("s", vector([1 << 30, 1 << 30])), op("y", "CropAndResize", "x", "b", "i", "s")]),
    "blocks of 2**30": lambda: graph([placeholder("x", (1, 4, 4, 1)), Made("y", "SpaceToDepth", ["x"], {"block_size": attribute(1 << 30), **T})]),
    "blocks of 0": lambda: graph([placeholder("x", (1, 4, 4, 1)), Made("y", "DepthToSpace", ["x"], {"block_size": attribute(0), **T})]),
    "a window of 2**40": lambda: graph([placeholder("x", (1, 4, 4, 1)), Made("y", "AvgPool", ["x"], {"ksize": run(1, run(3, packed([1, 1 << 40, 1 << 40, 1]))), "strides": run(1, run(3, packed([1, 1, 1, 1]))), "padding": run(2, "SAME"), **T})]),
    "a window of 10**5, its ends counted": lambda: graph([placeholder("x", (1, 4, 4, 1)), Made("y", "ExtractImagePatches", ["x"], {"ksizes": run(1, run(3, packed([1, 100_000, 100_000, 1]))), "strides": run(1, run(3, packed([1, 1, 1, 1]))), "rates": run(1, run(3, packed([1, 1, 1, 1]))), "padding": run(2, "VALID"), **T})]),
    "a window of 0": lambda: graph([placeholder("x", (1, 4, 4, 1)), Made("y", "MaxPool", ["x"], {"ksize": run(1, run(3, packed([0, 0, 0, 0]))), "strides": run(1, run(3, packed([0, 0, 0, 0]))), "padding": run(2, "VALID"), **T})]),
    "a window of no axes": lambda: graph([placeholder("x", (1, 4, 4, 1)), Made("y", "MaxPool", ["x"], {"ksize": run(1, b""), "strides": run(1, b""), "padding": run(2, "VALID"), **T})]),
    "a convolution of other ranks": lambda: graph([X, const("w", floats([1.0] * 9, (3, 3))), Made("y", "Conv2D", ["x", "w"], {"strides": run(1, run(3, packed([1, 1, 1, 1]))), "padding": run(2, "SAME"), **T})]),
    "a convolution of other channels": lambda: graph([placeholder("x", (1, 4, 4, 7)), const("w", floats([1.0] * 9, (3, 3, 1, 1))), Made("y", "Conv2D", ["x", "w"], {"strides": run(1, run(3, packed([1, 1, 1, 1]))), "padding": run(2, "SAME"), **T})]),
    "an equation of 10**5 letters": lambda: equation("a" * 100_000 + "->a", 1),
    "an equation of 10**5 letters, each once": lambda: equation(",".join(chr(0x4E00 + i) for i in range(size(500, 20_000))) + "->", size(500, 20_000)),
    "an equation of no inputs": lambda: equation("ij,jk->ik", 0),
    "an equation of nothing": lambda: equation(""),
    "an equation of arrows": lambda: equation("->" * 1000),
    "an equation of dots": lambda: equation("." * 100_000),
    "an equation that is cut": lambda: equation("ij,"),
    "an equation of bytes": lambda: graph([X, Made("y", "Einsum", ["x"], {"equation": run(2, b"\xff\xfe->\xff"), "N": attribute(1), **T})]),
    "a list of 10**9": lambda: list_of(1_000_000_000),
    "a list of -5": lambda: list_of(-5),
    "a list of 10**5": lambda: list_of(100_000),
    "an array of 10**9": lambda: array_of(1_000_000_000),
    "an array of -1": lambda: array_of(-1),
    "a table of many": lambda: table_of(size(20_000, 1_000_000)),
    "sums of names": lambda: sizes_of_sizes("Add", 200),
    "products of names": lambda: sizes_of_sizes("Mul", 200),
    "differences of names": lambda: sizes_of_sizes("Sub", 200),
    "quotients of names": lambda: sizes_of_sizes("FloorDiv", 200),
    "the largest of names": lambda: sizes_of_sizes("Maximum", 200),
    "powers of 10**9": lambda: graph([X, *(n for i in range(64) for n in [Made(f"m{i}", "Mul", [f"m{i - 1}" if i else "c"] * 2, {"T": typed(INT64)})]), const("c", vector([10**9], INT64)), op("y", "Reshape", "x", "m63")]),
    "a power of a power": lambda: graph([X, const("c", vector([FAR], INT64)), *(Made(f"m{i}", "Pow", [f"m{i - 1}" if i else "c", "c"], {"T": typed(INT64)}) for i in range(20)), op("y", "Reshape", "x", "m19")]),
    "a cast of NaN": lambda: graph([X, const("c", floats([float("nan"), 3e38])), Made("i", "Cast", ["c"], {"DstT": typed(INT64)}), op("y", "Reshape", "x", "i")]),
    "a division by 0": lambda: graph([X, const("a", vector([6], INT32)), const("b", vector([0], INT32)), Made("d", "FloorDiv", ["a", "b"], {"T": typed(INT32)}), op("y", "Reshape", "x", "d")]),
    "the smallest by -1": lambda: graph([X, const("a", vector([-FAR - 1], INT64)), const("b", vector([-1], INT64)), Made("d", "FloorDiv", ["a", "b"], {"T": typed(INT64)}), op("y", "Reshape", "x", "d")]),
    "bins without number": lambda: graph([placeholder("i", (3,), INT32), const("n", vector([1 << 30], sizes=())), const("w", floats([], (0,))), Made("y", "Bincount", ["i", "n", "w"], T)]),
    "segments without number": lambda: graph([X, placeholder("i", (2,), INT32), const("n", vector([1 << 30], sizes=())), Made("y", "UnsortedSegmentSum", ["x", "i", "n"], T)]),
    "boxes without number": lambda: graph([placeholder("b", (5, 4)), placeholder("s", (5,)), const("n", vector([(1 << 31) - 1], sizes=())), Made("y", "NonMaxSuppression", ["b", "s", "n"], {"iou_threshold": tag(4, 5) + b"\0\0\xc0\x7f"})]),
    "a matrix of 2**20 to invert": lambda: graph([placeholder("x", (1 << 20, 1 << 20)), op("y", "MatrixInverse", "x")]),
    "a signal of 10**6": lambda: graph([placeholder("x", (1 << 20,)), const("n", vector([1 << 20])), Made("y", "RFFT", ["x", "n"], {"Treal": typed(FLOAT), "Tcomplex": typed(8)}), Made("z", "Real", ["y"], {"T": typed(8), "Tout": typed(FLOAT)})]),
    "a band of extremes": lambda: ints("MatrixBandPart", [-FAR - 1, FAR], of=INT64, Tindex=typed(INT64)),
    "diagonals of extremes": lambda: graph([X, const("k", vector([-(1 << 31), (1 << 31) - 1])), *(const(f"c{i}", vector([1 << 30], sizes=())) for i in (0, 1)), const("p", floats([0.0], ())), op("y", "MatrixDiagV2", "x", "k", "c0", "c1", "p")]),
    "a roll of extremes": lambda: ints("Roll", [[FAR, -FAR - 1], [0, 1]], of=INT64, Taxis=typed(INT64), Tshift=typed(INT64)),
    "ranges of quantisation that are NaN": lambda: graph([X, const("a", floats([float("nan")], ())), const("b", floats([float("inf")], ())), Made("y", "FakeQuantWithMinMaxVars", ["x", "a", "b"], {"num_bits": attribute(8)})]),
    "2**60 bits": lambda: graph([X, const("a", floats([-1.0], ())), const("b", floats([1.0], ())), Made("y", "FakeQuantWithMinMaxVars", ["x", "a", "b"], {"num_bits": attribute(1 << 60)})]),
}
# fmt: on


@pytest.mark.parametrize("name", VALUES)
def test_values(arena, name):
    meet(arena, a_file(name, "m.pb", VALUES[name]()))


# -- types and attributes ------------------------------------------------------------------------


def given(**attributes):
    return Made("x", "Placeholder", [], attributes)


def y(**attributes):
    return op("y", "Sum", "x", "a", **attributes)


# fmt: off
ATTRIBUTES = {
    "no dtype": lambda: graph([given(), op("y", "Neg", "x")]),
    "dtype 1000": lambda: graph([given(dtype=typed(1000)), op("y", "Neg", "x")]),
    "dtype -1": lambda: graph([given(dtype=typed(-1)), op("y", "Neg", "x")]),
    "dtype 0": lambda: graph([given(dtype=typed(0)), op("y", "Neg", "x")]),
    "a reference": lambda: graph([given(dtype=typed(101), shape=run(7, shape((2, 3)))), op("y", "Neg", "x")]),
    "a resource": lambda: graph([given(dtype=typed(20), shape=run(7, shape((2, 3)))), op("y", "Neg", "x")]),
    "a variant": lambda: graph([given(dtype=typed(21)), op("y", "Identity", "x")]),
    "a complex": lambda: graph([given(dtype=typed(8), shape=run(7, shape((2, 3)))), op("y", "Neg", "x")]),
    "a float8": lambda: graph([given(dtype=typed(24), shape=run(7, shape((2, 3)))), op("y", "Identity", "x")]),
    "an int4": lambda: graph([given(dtype=typed(29), shape=run(7, shape((2, 3)))), op("y", "Identity", "x")]),
    "a qint": lambda: graph([given(dtype=typed(11), shape=run(7, shape((2, 3)))), op("y", "Identity", "x")]),
    "a dtype that is text": lambda: graph([given(dtype=run(2, "float")), op("y", "Neg", "x")]),
    "a dtype that is a list": lambda: graph([given(dtype=run(1, run(6, packed([1])))), op("y", "Neg", "x")]),
    "a dtype that is a function": lambda: graph([given(dtype=run(10, run(1, "f"))), op("y", "Neg", "x")]),
    "no rank": lambda: graph([placeholder("x", None), op("y", "Neg", "x")]),
    "no rank, and a product": lambda: graph([placeholder("x", None), const("w", floats([1.0] * 6, (2, 3))), op("y", "MatMul", "x", "w")]),
    "no rank, and texts": lambda: graph([placeholder("x", None, STRING), op("y", "Neg", "x")]),
    "half a shape": lambda: graph([placeholder("x", (-1, 3, -5)), op("y", "Neg", "x")]),
    "a shape of 2**62": lambda: graph([placeholder("x", (FAR, FAR)), const("s", vector([-1])), op("y", "Reshape", "x", "s")]),
    "a shape of 10**4 axes": lambda: graph([placeholder("x", (1,) * 10_000), op("y", "Neg", "x")]),
    "a shape of 10**3 axes, summed": lambda: graph([placeholder("x", (1,) * 1000), const("a", vector([*range(1000)])), y()]),
    "a shape that is a number": lambda: graph([given(dtype=typed(FLOAT), shape=num(3, 5)), op("y", "Neg", "x")]),
    "a shape that is a list": lambda: graph([given(dtype=typed(FLOAT), shape=run(1, run(3, packed([2, 3])))), op("y", "Neg", "x")]),
    "axes of an empty shape": lambda: graph([placeholder("x", ()), const("a", vector([0])), y()]),
    "keep_dims that is a function": lambda: graph([X, const("a", vector([0])), y(keep_dims=run(10, run(1, "f")))]),
    "keep_dims that is text": lambda: graph([X, const("a", vector([0])), y(keep_dims=run(2, "yes"))]),
    "keep_dims that is 2**60": lambda: graph([X, const("a", vector([0])), y(keep_dims=num(3, 1 << 60))]),
    "an attribute nobody knows": lambda: graph([X, op("y", "Neg", "x", what=num(3, 1))]),
    "an attribute without a value": lambda: graph([X, const("a", vector([0])), y(keep_dims=b"")]),
    "an attribute of no name": lambda: graph([X, Made("y", "Neg", ["x"], {"": num(3, 1)})]),
    "an attribute twice": lambda: run(1, Made("x", "Placeholder", [], {}).message() + run(5, run(1, "dtype") + run(2, typed(1))) * 2) + run(1, op("y", "Neg", "x").message()),
    "very many attributes": lambda: graph([X, op("y", "Neg", "x", **{f"_a{i}": num(3, i) for i in range(MANY)})]),
    "very many outputs of no node": lambda: graph([X, op("y", "IdentityN", *["x"] * MANY)]),
    "a constant without a value": lambda: graph([X, Made("c", "Const", [], {"dtype": typed(1)}), op("y", "Add", "x", "c")]),
    "a constant of a number": lambda: graph([X, Made("c", "Const", [], {"dtype": typed(1), "value": num(3, 1)}), op("y", "Add", "x", "c")]),
    "a constant of a resource": lambda: graph([X, Made("c", "Const", [], {"dtype": typed(20), "value": run(8, num(1, 20))}), op("y", "Add", "x", "c")]),
    "a constant of another dtype": lambda: graph([X, Made("c", "Const", [], {"dtype": typed(STRING), "value": run(8, floats([1.0]))}), op("y", "Add", "x", "c")]),
    "a constant without numbers": lambda: graph([X, const("c", num(1, INT32) + run(2, shape((2,)))), op("y", "Reshape", "x", "c")]),
    "a constant of no rank": lambda: graph([X, const("c", num(1, INT32) + run(2, num(3, 1)) + run(7, packed([6]))), op("y", "Reshape", "x", "c")]),
    "numbers and texts": lambda: graph([X, const("c", texts(3)), op("y", "Add", "x", "c")]),
    "integers and floats": lambda: graph([X, const("c", vector([1, 2, 3])), op("y", "Add", "x", "c")]),
    "matrices that do not meet": lambda: graph([X, const("w", floats([1.0] * 10, (5, 2))), op("y", "MatMul", "x", "w")]),
    "shapes that do not meet": lambda: graph([X, const("w", floats([1.0] * 10, (5, 2))), op("y", "Add", "x", "w")]),
    "a variable of nothing": lambda: graph([X, Made("v", "VarHandleOp", [], {"dtype": typed(1), "shape": run(7, shape((2, 3)))}), Made("r", "ReadVariableOp", ["v"], {"dtype": typed(1)}), op("y", "Add", "x", "r")]),
    "a variable of text for a name": lambda: graph([X, Made("v", "VariableV2", [], {"dtype": typed(1), "shape": run(7, shape((2, 3))), "shared_name": num(3, 1), "container": run(10, b"")}), op("y", "Add", "x", "v")]),
    "a variable that assigns itself": lambda: graph([X, Made("v", "VariableV2", [], {"dtype": typed(1), "shape": run(7, shape((2, 3)))}), op("a", "Assign", "v", "a"), op("y", "Add", "x", "a")]),
    "a list of lists": lambda: graph([X, op("y", "Neg", "x", _a=run(1, run(9, run(1, "f"))))]),
    "strides of the wrong length": lambda: graph([placeholder("x", (1, 4, 4, 1)), const("w", floats([1.0] * 9, (3, 3, 1, 1))), Made("y", "Conv2D", ["x", "w"], {"strides": run(1, run(3, packed([1]))), "dilations": run(1, run(3, packed([1] * 50))), "padding": run(2, "SAME"), **T})]),
    "paddings of the wrong length": lambda: graph([placeholder("x", (1, 4, 4, 1)), const("w", floats([1.0] * 9, (3, 3, 1, 1))), Made("y", "Conv2D", ["x", "w"], {"strides": run(1, run(3, packed([1, 1, 1, 1]))), "explicit_paddings": run(1, run(3, packed([1, 2, 3]))), "padding": run(2, "EXPLICIT"), **T})]),
    "a padding nobody knows": lambda: graph([placeholder("x", (1, 4, 4, 1)), const("w", floats([1.0] * 9, (3, 3, 1, 1))), Made("y", "Conv2D", ["x", "w"], {"strides": run(1, run(3, packed([1, 1, 1, 1]))), "padding": run(2, b"\xff" * 100_000), **T})]),
}
# fmt: on


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_attributes(arena, name):
    meet(arena, a_file(name, "m.pb", ATTRIBUTES[name]()))


# -- SavedModels ---------------------------------------------------------------------------------


def tensor_info(name, kind=FLOAT, sizes=(2, 3)):
    return run(1, name) + num(2, kind) + run(3, shape(sizes))


def signature(inputs, outputs, name="serving_default"):
    body = b"".join(run(1, run(1, k) + run(2, v)) for k, v in inputs.items())
    body += b"".join(run(2, run(1, k) + run(2, v)) for k, v in outputs.items())
    return run(5, run(1, name) + run(2, body))


def collection(name, *nodes):
    return run(4, run(1, name) + run(2, run(1, b"".join(run(1, n) for n in nodes))))


def model(nodes, more=b"", functions=(), **files):
    return {"saved_model.pb": saved_model(graph(nodes, functions), more), **files}


IN, OUT = {"x": tensor_info("x:0")}, {"y": tensor_info("y:0")}
SOUND = signature(IN, OUT)
NEG = [X, op("y", "Neg", "x")]
READ = [
    X, Made("v", "VarHandleOp", [], {"dtype": typed(1), "shape": run(7, shape((2, 3))), "shared_name": run(2, "v")}),
    Made("r", "ReadVariableOp", ["v"], {"dtype": typed(1)}), op("y", "Add", "x", "r"),
]  # fmt: skip


def restored(**changed):
    """Variables of a checkpoint, and a restore function that assigns them."""
    nodes = [*READ, *changed.get("more", ())]
    saver = run(3, run(1, "filename:0") + run(2, "control") + run(3, "restore"))
    files = {
        f"variables/variables{k[4:]}": v
        for k, v in bundle({b"v": entry(sizes=changed.get("sizes", (3, 4)))}).items()
    }
    return {"saved_model.pb": saved_model(graph(nodes), SOUND + saver), **files}


# fmt: off
MODELS = {
    "a sound one": lambda: model(NEG, SOUND),
    "an output that is not there": lambda: model(NEG, signature(IN, {"y": tensor_info("nothing:0")})),
    "an input that is not there": lambda: model(NEG, signature({"x": tensor_info("nothing:0")}, OUT)),
    "an output port that is not there": lambda: model(NEG, signature(IN, {"y": tensor_info("y:9")})),
    "an input port that is not there": lambda: model(NEG, signature({"x": tensor_info("x:9")}, OUT)),
    "an output of no name": lambda: model(NEG, signature(IN, {"y": num(2, 1)})),
    "an output of a key of no name": lambda: model(NEG, signature(IN, {"": tensor_info("y:0")})),
    "an input that is in the middle": lambda: model([X, op("m", "Neg", "x"), op("y", "Neg", "m")], signature({"m": tensor_info("m:0")}, OUT)),
    "an input that is an output": lambda: model(NEG, signature({"y": tensor_info("y:0")}, OUT)),
    "two inputs that are one": lambda: model(NEG, signature({"x": tensor_info("x:0"), "z": tensor_info("x:0")}, OUT)),
    "an input of another dtype": lambda: model(NEG, signature({"x": tensor_info("x:0", STRING)}, OUT)),
    "an input of another shape": lambda: model(NEG, signature({"x": tensor_info("x:0", FLOAT, (7,))}, OUT)),
    "an output of another dtype": lambda: model(NEG, signature(IN, {"y": tensor_info("y:0", INT64, (9, 9, 9))})),
    "a sparse output": lambda: model(NEG, signature(IN, {"y": num(2, 1) + run(4, run(1, "y:0") + run(2, "y:0") + run(3, "y:0"))})),
    "a sparse input": lambda: model(NEG, signature({"x": num(2, 1) + run(4, run(1, "x:0") + run(2, "x:0") + run(3, "x:0"))}, OUT)),
    "a composite": lambda: model(NEG, signature(IN, {"y": num(2, 1) + run(5, run(2, tensor_info("y:0")))})),
    "an input nobody reads": lambda: model([*NEG, placeholder("z", (2,))], signature({**IN, "z": tensor_info("z:0")}, OUT)),
    "very many signatures": lambda: model(NEG, b"".join(signature(IN, OUT, f"s{i}") for i in range(size(20, 1000)))),
    "a signature of slashes": lambda: model(NEG, signature(IN, OUT, "../../escaped")),
    "two signatures of one file": lambda: model(NEG, signature(IN, OUT, "a/b") + signature(IN, OUT, "a_b") + signature(IN, OUT, "A_B")),
    "a signature of 10**5 letters": lambda: model(NEG, signature(IN, OUT, "s" * 100_000) + signature(IN, OUT, "t")),
    "names of outputs with newlines": lambda: model(NEG, signature({"x\n\0": tensor_info("x:0")}, {"y\x1b[2J": tensor_info("y:0")})),
    "a variable without a checkpoint": lambda: model(READ, SOUND),
    "a checkpoint of another shape": lambda: restored(),
    "a checkpoint of the right shape": lambda: restored(sizes=(2, 3)),
    "a checkpoint of no rank": lambda: restored(sizes=()),
    "a restore in a circle": lambda: restored(sizes=(2, 3), more=[Made("a", "AssignVariableOp", ["v", "b"], {"dtype": typed(1)}), op("b", "Identity", "b"), Made("restore", "NoOp", ["^a"])]),
    "a restore that calls itself": lambda: {**restored(), "saved_model.pb": saved_model(graph([*READ, call("restore", "f", "x"), placeholder("filename", (), STRING), Made("control", "NoOp", ["^restore"])], [function("f", ["v"], [call("a", "f", "v")], {"r": "a:output:0"})]), SOUND + run(3, run(1, "filename:0") + run(2, "control") + run(3, "restore")))},
    "an init op in a circle": lambda: model([*READ, Made("a", "AssignVariableOp", ["v", "b"], {"dtype": typed(1)}), op("b", "Identity", "b"), Made("init", "NoOp", ["^a", "^init"])], SOUND + collection("saved_model_main_op", "init")),
    "an init op that is not there": lambda: model(NEG, SOUND + collection("saved_model_main_op", "nothing")),
    "very many init ops": lambda: model(NEG, SOUND + collection("legacy_init_op", *["y"] * MANY)),
    "an init op that calls itself": lambda: model([*READ, call("init", "f", "x")], SOUND + collection("saved_model_main_op", "init"), [function("f", ["v"], [call("a", "f", "v")], {"r": "a:output:0"})]),
    "an asset outside": lambda: model([*NEG, const("file", texts(1, b"f"))], SOUND + run(6, run(1, run(1, "file:0")) + run(2, "../../../etc/passwd"))),
    "an asset of no tensor": lambda: model(NEG, SOUND + run(6, run(1, run(1, "nothing:0")) + run(2, "words.txt"))),
    "a table of an asset outside": lambda: model([placeholder("x", (3,), STRING), const("file", num(1, STRING) + run(8, b"../../etc/passwd")), const("d", vector([-1], INT64, ())),
        Made("t", "HashTableV2", [], {"key_dtype": typed(STRING), "value_dtype": typed(INT64)}),
        Made("init", "InitializeTableFromTextFileV2", ["t", "file"], {"key_index": num(3, -2), "value_index": num(3, -1), "vocab_size": num(3, -1), "delimiter": run(2, "\t")}),
        Made("y", "LookupTableFindV2", ["t", "x", "d"], {"Tin": typed(STRING), "Tout": typed(INT64)})],
        signature({"x": tensor_info("x:0", STRING, (3,))}, {"y": tensor_info("y:0", INT64, (3,))}) + collection("table_initializer", "init") + run(6, run(1, run(1, "file:0")) + run(2, "../../etc/passwd"))),
}
# fmt: on


# Of several signatures, one file each.
SEVERAL = ("very many signatures", "two signatures", "a signature of 10**5")


@pytest.mark.parametrize("name", MODELS)
def test_saved_models(arena, name):
    files = {f"m/{path}": data for path, data in MODELS[name]().items()}
    attack = a_folder(name, files, "m")
    if name.startswith(SEVERAL):
        for operation in ("onnx", "portable"):
            (outcome,) = arena.one(attack, (operation,))
            assert outcome.code in (0, 2, 3, 4), outcome
    else:
        meet(arena, attack)


# -- damage --------------------------------------------------------------------------------------

GRAPHS = max(1, round(30 * ROUNDS))  # graphs of the fixtures that are damaged, drawn by lot
DAMAGES = 2  # of what each says, beside one of its bytes


@cache
def archives():
    return {path.stem: zipfile.ZipFile(path) for path in sorted(FIXTURES.glob("tf_ops/*.zip"))}


def sound():
    """Yield every graph of the fixtures."""
    for family, archive in archives().items():
        for name in archive.namelist():
            if name.endswith(".pb"):
                yield f"{family}:{name}", partial(archive.read, name)


@pytest.mark.timeout(0)
def test_damaged_graphs(arena):
    every = list(sound())
    rng = random.Random(os.environ.get("CONVERTER_ATTACK_SEED", "1"))
    drawn = rng.sample(every, min(GRAPHS, len(every)))
    ops = sorted(set(OPS))

    for name, read in drawn:
        data = read()
        seed = f"{name}/{rng.random()}"
        tries = [*damaged_graphs(data, DAMAGES, seed, ops), *damaged(data, 1, seed)]
        for what, bad in tries:
            meet(arena, a_file(f"{name} {what}", "m.pb", bad))
