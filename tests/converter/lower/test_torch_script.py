"""TorchScript archives of fixtures/torch_programs: our graph computes what torch computed."""

import zipfile

import numpy as np
import pytest
import spellings
from onnx_run import run
from repository import FIXTURES
from torch_scripts import PROGRAMS, check_runs, unpacked

from converter.lower import OPSET
from converter.lower.torch.lowering import lower
from converter.lower.torch.script.source import decode_signed_bytes
from converter.options import parse_inputs
from formats.artifact import Artifact
from formats.errors import UsageError
from formats.torch import script as torch_script

SCRIPTS = [name for name, entry in PROGRAMS.items() if entry["how"] != "pickle"]


@pytest.mark.parametrize("name", SCRIPTS)
def test_computes_what_torch_computes(name, tmp_path):
    path, arrays = unpacked("scripts.zip", name, tmp_path)
    bundle = torch_script.read(Artifact(path))
    entry = PROGRAMS[name]
    graph = lower(bundle, opset=OPSET, inputs=parse_inputs(entry["inputs"]))
    check_runs(graph, bundle, arrays, entry["runs"])


@pytest.mark.parametrize("age", ["1.0", "1.0-py27", "1.2", "1.4", "1.6", "1.12", "2.4"])
def test_archives_of_every_age(age, tmp_path):
    bundle = torch_script.read(Artifact(FIXTURES / "torch" / f"torch{age}-script.pt"))
    w = {name: tensor.numpy() for name, tensor in bundle.weights.items()}
    size = w["fc.weight"].shape[1]
    graph = lower(bundle, opset=OPSET, inputs=parse_inputs([f"x:float32:batch,{size}"]))
    x = np.random.default_rng(3).normal(size=(4, size)).astype(np.float32)
    (got,) = run(graph, x, weights=bundle.weights)
    wanted = x @ w["w"] + w["table"][0] + x @ w["fc.weight"].T + w["fc.bias"]
    np.testing.assert_allclose(got, wanted, atol=1e-5, rtol=1e-5)


def lower_program(name, tmp_path, *inputs):
    path, _ = unpacked("scripts.zip", name, tmp_path)
    bundle = torch_script.read(Artifact(path))
    return lower(bundle, opset=OPSET, inputs=parse_inputs(inputs))


def test_the_first_convolution_says_what_the_input_is(tmp_path):
    graph = lower_program("convolutional-trace", tmp_path)
    assert graph.specs["x"].shape == ("batch", 3, "height", "width")
    assert any("x:float32:batch,3,height,width" in note for note in graph.notes)


def test_an_embedding_wants_integers(tmp_path):
    graph = lower_program("recurrent-script", tmp_path)
    assert (graph.specs["tokens"].dtype, len(graph.specs["tokens"].shape)) == ("int64", 2)


def test_what_nothing_says_is_asked_for(tmp_path):
    with pytest.raises(UsageError, match=r"inputs=\['x:float32:") as e:
        lower_program("branches-script", tmp_path)
    assert e.value.exit_code == 2


def test_an_input_that_is_none_is_named(tmp_path):
    with pytest.raises(UsageError, match="inputs='y'") as e:
        lower_program("branches-script", tmp_path, "y:float32:batch,3")
    assert e.value.expected == "x"


def test_a_trace_that_fixes_the_batch_says_so(tmp_path):
    graph = lower_program("fixedbatch-trace", tmp_path, "x:float32:batch,1,6,6")
    assert graph.specs["x"].shape == (2, 1, 6, 6)
    assert any("batch is 2" in note for note in graph.notes)


def test_state_that_is_not_kept_is_named(tmp_path):
    graph = lower_program("objects-script", tmp_path, "x:float32:batch,4")
    assert graph.unkept == ["seen"]


def test_checks_that_are_left_out_are_named(tmp_path):
    graph = lower_program("branches-script", tmp_path, "x:float32:batch,3")
    assert any("raise" in note for note in graph.notes)


# What torch 2.13 computes with them.
QUANTIZED = {
    "1.4": [[-0.5358, 0.07709], [0.47749, -0.1381], [0.71893, -0.37152], [-0.55122, -0.66863]],
    "1.6": [[-1.29116, -0.93464], [0.21901, -0.16376], [0.66145, -0.39032], [0.24976, 0.40482]],
    "1.12": [[-0.32199, -0.03856], [0.71181, -0.45671], [1.55713, -1.38459], [-1.17571, 1.71723]],
    "2.4": [[-0.52795, 0.07866], [0.46269, -0.15337], [0.71985, -0.37253], [-0.56334, -0.68358]],
}


@pytest.mark.parametrize("age", QUANTIZED)
def test_packed_quantized_layers_of_every_age(age, tmp_path):
    path = FIXTURES / "torch" / f"torch{age}-quantized-script.pt"
    bundle = torch_script.read(Artifact(path))
    graph = lower(bundle, opset=OPSET, inputs=parse_inputs(["x:float32:batch,3"]))
    x = np.random.default_rng(3).normal(size=(4, 3)).astype(np.float32)
    (got,) = run(graph, x, weights=bundle.weights)
    np.testing.assert_allclose(got, QUANTIZED[age], atol=2e-5)


OLD_RESIZE = """class Branches(Module):
  training : bool
  def forward(self: __torch__.programs.Branches,
    x: Tensor) -> Tensor:
    n = ops.prim.NumToTensor(torch.size(x, 2))
    half = torch.tensor(2.5, dtype=7, device=torch.device("cpu"), requires_grad=False)
    two = torch.tensor(2, dtype=4, device=torch.device("cpu"), requires_grad=False)
    wide = torch.to(torch.mul(torch.to(n, 6, False, False), half), 6, False, False)
    return torch.upsample_nearest2d(x, [int(torch.floor(wide)), int(torch.div(n, two))])
"""


@pytest.mark.parametrize(("height", "rows", "cut"), [(5, 12, 2), ("h", None, "(h)//(2)")])
def test_sizes_that_old_traces_compute(height, rows, cut, tmp_path):
    """Before version 4 of the ops, a division of integers cuts off; sizes stay sizes."""
    path, _ = unpacked("scripts.zip", "branches-script", tmp_path)
    old = tmp_path / "old.pt"
    with zipfile.ZipFile(path) as held, zipfile.ZipFile(old, "w") as made:
        for name in held.namelist():
            data = OLD_RESIZE if name.endswith("programs.py") else held.read(name)
            made.writestr(name, "3" if name.endswith("/version") else data)
    bundle = torch_script.read(Artifact(old))
    graph = lower(bundle, opset=OPSET, inputs=parse_inputs([f"x:float32:n,3,{height},4"]))
    shape = graph.specs["output"].shape
    assert shape[3] == cut
    assert rows is None or shape[2] == rows
    x = np.arange(2 * 3 * 5 * 4, dtype=np.float32).reshape(2, 3, 5, 4)
    (got,) = run(graph, x, weights=bundle.weights)
    at = np.arange(12) * 5 // 12, np.arange(2) * 4 // 2
    np.testing.assert_array_equal(got, x[:, :, at[0]][:, :, :, at[1]])


OLD_OPS = """class Branches(Module):
  training : bool
  def forward(self: __torch__.programs.Branches,
    x: Tensor) -> Tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    a = torch.__interpolate(x, None, 2., "nearest", None)
    b = torch.__interpolate(x, [5, 7], None, "bilinear", True)
    c = torch.__upsample(x, [4, 2], None, "bilinear", False)
    d = torch.__upsample_bilinear(x, [5, 7])
    e = torch.__upsample_nearest(x, None, 2)
    f = torch.mul(torch._shape_as_tensor(x), torch.size(x, 0))
    g = torch.linspace(0, 99, None, dtype=6)
    h = torch.logspace(0, 2, None, 10., dtype=6)
    i = torch.select(torch._dim_arange(x, 1), 0, 0)
    return (a, b, c, d, e, torch.add(f, i), torch.mul(g, h))
"""


def test_ops_that_old_programs_call(tmp_path):
    """Functions were ops before torch 1.5, and numbers at equal distances a hundred by default."""
    path, _ = unpacked("scripts.zip", "branches-script", tmp_path)
    old = tmp_path / "old.pt"
    with zipfile.ZipFile(path) as held, zipfile.ZipFile(old, "w") as made:
        for name in held.namelist():
            data = OLD_OPS if name.endswith("programs.py") else held.read(name)
            made.writestr(name, "2" if name.endswith("/version") else data)
    bundle = torch_script.read(Artifact(old))
    graph = lower(bundle, opset=OPSET, inputs=parse_inputs(["x:float32:n,3,3,4"]))
    x = np.random.default_rng(5).normal(size=(2, 3, 3, 4)).astype(np.float32)
    got = run(graph, x, weights=bundle.weights)
    twice = x.repeat(2, axis=2).repeat(2, axis=3)
    corners = _sampled(_sampled(x, np.linspace(0, 2, 5), 2), np.linspace(0, 3, 7), 3)
    rows, columns = (
        np.clip((np.arange(n) + 0.5) * m / n - 0.5, 0, None) for n, m in ((4, 3), (2, 4))
    )
    smaller = _sampled(_sampled(x, rows, 2), columns, 3)
    numbers = np.linspace(0, 99, 100) * np.logspace(0, 2, 100)
    wanted = [twice, corners, smaller, corners, twice, [4, 6, 6, 8], numbers]
    for ours, theirs in zip(got, wanted, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def _sampled(x, places, axis):
    """Return elements at places along an axis, between two of them by shares."""
    low = np.minimum(np.floor(places).astype(int), x.shape[axis] - 1)
    high = np.minimum(low + 1, x.shape[axis] - 1)
    share = (places - low).reshape([-1 if i == axis else 1 for i in range(x.ndim)])
    return x.take(low, axis) * (1 - share) + x.take(high, axis) * share


RATED = [
    "y = x0",
    "if torch.eq(rate, 16000):",
    "  y = torch.slice(x0, 1, 0, 5)",
    "elif flag:",
    "  y = torch.neg(x0)",
    "else:",
    "  y = torch.mul(x0, scale)",
    "return y",
]
ARGUMENTS = ["rate: int", "flag: bool=True", "scale: float=2.", "mode: Optional[str]=None"]


@pytest.mark.parametrize(
    ("given", "expected"),
    [(["rate=16000"], lambda x: x[:, :5]), (["rate=8000"], lambda x: -x),
     (["rate=8000", "flag=false"], lambda x: 2 * x),
     (["rate=0", "flag=false", "scale=3", 'mode="b"'], lambda x: 3 * x)],
)  # fmt: skip
def test_fixed_arguments_decide_branches(given, expected, tmp_path):
    x = np.random.default_rng(0).normal(size=(2, 9)).astype("float32")
    graph, weights = spellings.torch_script(
        tmp_path, RATED, [("float32", (None, 9))], ARGUMENTS, given
    )
    assert graph.inputs == ["x0"]
    assert any(note.startswith("argument rate is fixed to ") for note in graph.notes)
    np.testing.assert_allclose(run(graph, x, weights=weights)[0], expected(x), rtol=1e-6)


@pytest.mark.parametrize(
    ("given", "message"),
    [(["rate=1.5"], "argument is of type int, and not 1.5"),
     (["rate=true"], "argument is of type int, and not True"),
     (["rate=1", "mode=3"], "is of type Optional.str., and not 3"),
     (["x0=3"], "expected each name once"), (["rate=1", "speed=2"], "no such argument")],
)  # fmt: skip
def test_fixed_arguments_have_the_declared_types(given, message, tmp_path):
    with pytest.raises(UsageError, match=message):
        spellings.torch_script(tmp_path, RATED, [("float32", (None, 9))], ARGUMENTS, given)


def test_only_tensors_are_asked_for(tmp_path):
    with pytest.raises(UsageError) as caught:
        spellings.torch_script(
            tmp_path, "torch.slice(x0, 0, 0, rate)", [], ["x0: Tensor", *ARGUMENTS]
        )
    assert "x0:float32" in str(caught.value)
    assert "rate:" not in str(caught.value)


FREE, GRID = [("float32", (None, 3))], [("float32", (None, 4, None, 3))]
# Expression, inputs, what it computes.
BY_SIZES = [
    ("torch.linspace(-1, 2, torch.size(x0, 0))", FREE, lambda x: np.linspace(-1, 2, len(x))),
    ("torch.logspace(0., 1., torch.size(x0, 0), 2.)", FREE,
     lambda x: np.logspace(0, 1, len(x), base=2)),
    ("torch.cumprod(x0, 0)", FREE, lambda x: np.cumprod(x, 0)),
    ("torch.chunk(x0, 2, 0)[1]", FREE, lambda x: x[(len(x) + 1) // 2 :]),
    ("torch.tensor_split(x0, 3, 0)[1]", FREE, lambda x: np.array_split(x, 3)[1]),
    ("torch.pad(x0, [1, torch.size(x0, 0)])", FREE, lambda x: np.pad(x, [(0, 0), (1, len(x))])),
    ('torch.pad(x0, [1, torch.size(x0, 0)], "replicate")', FREE,
     lambda x: np.pad(x, [(0, 0), (1, len(x))], "edge")),
    ("torch.as_strided(x0, [torch.size(x0, 0), 2], [3, 1], 1)", FREE, lambda x: x[:, 1:]),
    ("torch.pixel_shuffle(x0, 2)", GRID,
     lambda x: x.reshape(len(x), 2, 2, x.shape[2], 3).transpose(0, 3, 1, 4, 2)
     .reshape(len(x), 1, 2 * x.shape[2], 6)),
    ("torch.topk(torch.select(x0, 1, 0), int(torch.sum(torch.gt(torch.select(x0, 1, 0), 0.))))[0]",
     FREE, lambda x: -np.sort(-x[x[:, 0] > 0, 0])),
]  # fmt: skip


OF_TWO_NAMES = {
    "torch.masked_select(x0, torch.gt(x1, 0.))": lambda a, b: a[np.broadcast_to(b > 0, a.shape)],
    "torch.broadcast_tensors([x0, x1])[1]": lambda a, b: np.broadcast_to(b, a.shape),
    "torch.masked_scatter(x0, torch.gt(x1, 9.), x0)": lambda a, _: a,
}


@pytest.mark.parametrize("code", OF_TWO_NAMES)
def test_sizes_of_two_names_are_broadcast(code, tmp_path):
    inputs = [("float32", (5, None)), ("float32", (None,))]
    graph, weights = spellings.torch_script(tmp_path, code, inputs)
    rng = np.random.default_rng(0)
    for left, right in ((4, 4), (4, 1), (0, 0)):
        a, b = rng.normal(size=(5, left)), rng.normal(size=right)
        a, b = a.astype("float32"), b.astype("float32")
        (found,) = run(graph, a, b, weights=weights)
        np.testing.assert_array_equal(found, OF_TWO_NAMES[code](a, b))


def test_adaptive_means_of_no_rows(tmp_path):
    code = "torch.adaptive_avg_pool1d(x0, [5])"
    graph, weights = spellings.torch_script(tmp_path, code, [("float32", (0, None, 8))])
    (found,) = run(graph, np.zeros((0, 3, 8), "float32"), weights=weights)
    assert found.shape == (0, 3, 5)


@pytest.mark.parametrize("scale", [1.5, 0.75, 2.0, 0.5])
def test_axes_of_any_size_grow_by_fractions(scale, tmp_path):
    code = f"torch.upsample_linear1d(x0, None, False, [{scale}])"
    graph, weights = spellings.torch_script(tmp_path, code, [("float32", (1, 2, None))])
    for n in (2, 3, 5, 9, 100):
        x = np.random.default_rng(n).normal(size=(1, 2, n)).astype("float32")
        places = np.clip((np.arange(int(n * scale)) + 0.5) / scale - 0.5, 0, n - 1)
        (found,) = run(graph, x, weights=weights)
        np.testing.assert_allclose(found, _sampled(x, places, 2), rtol=1e-5, atol=1e-5)


def grow(n, count):
    """Return a size, and what computes it in the program: an expression of many characters."""
    size, code = n, "torch.size(x0, 0)"
    for _ in range(count):
        size = size * 3 // 4 + n
        code = f"torch.add(torch.floordiv(torch.mul({code}, 3), 4), torch.size(x0, 0))"
    return size, code


@pytest.mark.parametrize("count", [2, 20])
def test_sizes_of_long_expressions(count, tmp_path):
    code = f"torch.linspace(0., 1., torch.neg(torch.neg({grow(0, count)[1]})))"
    graph, weights = spellings.torch_script(tmp_path, code, FREE)
    for n in (1, 2, 9):
        (found,) = run(graph, np.zeros((n, 3), "float32"), weights=weights)
        np.testing.assert_allclose(found, np.linspace(0, 1, grow(n, count)[0]), atol=1e-6)


@pytest.mark.parametrize(("code", "inputs", "compute"), BY_SIZES)
def test_sizes_that_only_the_run_knows(code, inputs, compute, tmp_path):
    graph, weights = spellings.torch_script(tmp_path, code, inputs)
    for count in (0, 1, 2, 5, 70):
        shape = [count if n is None else n for n in inputs[0][1]]
        x = np.random.default_rng(count).normal(size=shape).astype("float32")
        if count == 0 and ("replicate" in code or "chunk" in code or "split" in code):
            continue  # torch has no edge, and no second part, of nothing
        (found,) = run(graph, x, weights=weights)
        expected = np.asarray(compute(x), "float32")
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


# Names in the source text of torch 2.13, which itself cannot load them: bytes of signed numbers.
WRITTEN = {
    "gr\\0)+\\//.\\0)+\\/,/e": "größe",
    "\\0--\\/*0\\/*-": "名",
    "\\\\/*0\\000\\001": "\\\\/*0\\000\\001",  # an escaped backslash, NUL and 1
}


@pytest.mark.parametrize("written", WRITTEN)
def test_names_beyond_ascii(written):
    assert decode_signed_bytes(written) == WRITTEN[written]


def test_outputs_are_called_as_the_program_calls_them(tmp_path):
    code = 'return annotate(Dict[str, Tensor], {"gr\\0)+\\//.\\0)+\\/,/e": torch.neg(x0)})'
    graph, _ = spellings.torch_script(tmp_path, [code], FREE)
    assert graph.outputs == ["größe"]


def test_a_write_to_an_input_is_noted(tmp_path):
    code = ["_0 = torch.add_(torch.select(x0, 1, 0), 1)", "return torch.mul(x0, x1)"]
    graph, _ = spellings.torch_script(tmp_path, code, FREE * 2)
    assert graph.overwritten == ["x0"]


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_attention_of_heads_of_any_size_divides_by_its_root(dtype, tmp_path):
    code = "torch.scaled_dot_product_attention(x0, x1, x2)"
    tensors = [(dtype, (2, 3, None)), (dtype, (2, 4, None)), (dtype, (2, 4, 5))]
    graph, weights = spellings.torch_script(tmp_path, code, tensors)
    for size in (1, 6, 33):
        rng = np.random.default_rng(size)
        q, k, v = (
            rng.normal(size=s).astype(dtype) for s in ((2, 3, size), (2, 4, size), (2, 4, 5))
        )
        scores = q.astype(float) @ k.astype(float).swapaxes(1, 2) / np.sqrt(size)
        powers = np.exp(scores)
        wanted = powers / powers.sum(-1, keepdims=True) @ v.astype(float)
        (got,) = run(graph, q, k, v, weights=weights)
        tolerance = 1e-5 if dtype == "float32" else 2e-3
        np.testing.assert_allclose(got.astype(float), wanted, atol=tolerance, rtol=tolerance)
