"""Zeros, infinities, NaN, overflow and nothing at all: TorchScript's text against torch itself."""

import math

import numpy as np
import onnx_run
import pytest
import spellings

from converter.passes import simplify
from converter.passes.propagate_nan import propagate_nan

torch = pytest.importorskip("torch")

ENDS = [0.0, -0.0, 0.3, -0.7, 1.5, -2.5, 1e30, -1e30, math.inf, -math.inf, math.nan, 7.0]
EACH = [np.array([ENDS], "float32")]
PAIRS = [np.array([[a for a in ENDS for _ in ENDS]], "float32"),
         np.array([ENDS * len(ENDS)], "float32")]  # fmt: skip
INTEGERS = [np.array([[7, -7, 3, -3, 0, 5, 2**31 - 1]], "int32"),
            np.array([[2, 2, -2, -2, 3, -5, -1]], "int32")]  # fmt: skip
MIXED = [np.array([[[1, math.nan, 3, -math.inf, 5, math.inf, -2, 0.5]]], "float32")]
ENDLESS = [np.full((1, 1, 8), -math.inf, "float32")]
NO_ROWS, NO_COLUMNS = [np.zeros((0, 3), "float32")], [np.zeros((2, 0), "float32")]
ALL_BUT_ONE = [np.array([[math.nan, math.nan, math.inf, math.nan]], "float32")]
MATRIX = [np.random.default_rng(0).normal(size=(4, 4)).astype("float32")]
DRAWN = np.random.default_rng(1).normal(size=(9, 3, 3)).astype("float32")
EQUATIONS = [DRAWN[:2].reshape(6, 3), DRAWN[2:4].reshape(6, 3)]
STACKS = [DRAWN[:4], DRAWN[4]]  # one matrix for all of a stack
IMAGES = [DRAWN[5:9].reshape(1, 1, 6, 6), DRAWN[:2].reshape(1, 2, 3, 3)]
COUNTED = [np.array([3, 0, 3, 7]), np.array([0.5, 1, 2, math.inf], "float32")]
NO_CHANNELS = [np.zeros((0, 4, 2, 3), "float32")]
NOTHING = [np.zeros((0, 5, 5), "float32")]
DIVIDED = [np.array([[12, -18, 0, 7, 0, 2**40]]), np.array([[18, 12, 5, 0, 0, 6]])]
ONE = [np.array(0.7, "float32")]
# fmt: off
CALLS = [
    (EACH, """
        softshrink(x0, 0.5)|hardshrink(x0, 0.5)|threshold(x0, 0.5, 9.)|sign(x0)|sgn(x0)|relu(x0)
        nan_to_num(x0)|clamp(x0, -1, 2)|clamp(x0, -1)|isfinite(x0)|isinf(x0)|signbit(x0)|celu(x0)
        rsqrt(x0)|digamma(x0)|frac(x0)|trunc(x0)|logit(x0, 0.1)|softmax(x0, 1)|log_softmax(x0, 1)
        logsumexp(x0, [1])|cumsum(x0, 1)|cumprod(x0, 1)|logcumsumexp(x0, 1)"""),
    (PAIRS, """
        floor_divide(x0, x1)|remainder(x0, x1)|fmod(x0, x1)|pow(x0, x1)|maximum(x0, x1)|div(x0, x1)
        minimum(x0, x1)|fmax(x0, x1)|fmin(x0, x1)|atan2(x0, x1)|hypot(x0, x1)|logaddexp(x0, x1)
        logaddexp2(x0, x1)|xlogy(x0, x1)|heaviside(x0, x1)|eq(x0, x1)|le(x0, x1)|isclose(x0, x1)
        lerp(x0, x1, 0.3)|true_divide(x0, x1)|rsub(x0, x1)"""),
    (INTEGERS, "floor_divide(x0, x1)|remainder(x0, x1)|fmod(x0, x1)|div(x0, x1)|maximum(x0, x1)"),
    (MIXED, """
        avg_pool1d(x0, [3], [1])|sum(x0)|mean(x0)|prod(x0)|var(x0)|std(x0)|nansum(x0)|nanmean(x0)
        any(torch.isnan(x0))|norm(x0)|argsort(x0, 2)"""),
    (ENDLESS, "amax(x0, [2])|logsumexp(x0, [2])|softmax(x0, 2)|logcumsumexp(x0, 2)"),
    (NO_ROWS, """
        sum(x0)|sum(x0, 0)|mean(x0)|mean(x0, 0)|prod(x0, 0)|var(x0)|any(x0)|all(x0)|std(x0, 0)
        logsumexp(x0, [0])|cumsum(x0, 0)|flip(x0, [0])|norm(x0)|var(x0, 1)|median(x0)
        cumprod(x0, 0)"""),
    (EACH, """
        special_bessel_j0(x0)|special_bessel_j1(x0)|special_bessel_y0(x0)|special_bessel_y1(x0)
        i0(x0)|special_i0e(x0)|special_i1(x0)|special_i1e(x0)|special_modified_bessel_k0(x0)
        special_modified_bessel_k1(x0)|special_scaled_modified_bessel_k0(x0)|special_erfcx(x0)
        special_scaled_modified_bessel_k1(x0)|special_log_ndtr(x0)|mvlgamma(x0, 2)
        special_spherical_bessel_j0(x0)"""),
    (PAIRS, "special_xlog1py(x0, x1)"),
    (PAIRS, """
        copysign(x0, x1)|kl_div(x0, x1, 0)|huber_loss(x0, x1, 0)|smooth_l1_loss(x0, x1, 0)
        soft_margin_loss(x0, x1, 0)|hinge_embedding_loss(x0, x1, 1., 0)
        margin_ranking_loss(x0, x1, x1, 0., 0)|poisson_nll_loss(x0, x1, True, False, 1e-8, 0)
        trapezoid(x0, x1)|cumulative_trapezoid(x0, dim=1)|cov(x0)|cosine_similarity(x0, x1, 1)"""),
    (MATRIX, """
        cov(x0)|cov(x0, correction=0)|corrcoef(x0)|matrix_power(x0, 3)|matrix_power(x0, -2)
        tensor_split(x0, torch.tensor([1, 3]), 1)[1]|tensor_split(x0, torch.tensor(3))[0]
        matrix_power(x0, 0)|renorm(x0, 2., 0, 1.)|pdist(x0)|nuclear_norm(x0)|swapaxes(x0, 0, -1)
        trapezoid(x0, dim=-2)|trapz(x0)|vander(torch.select(x0, 0, 0))|histc(x0, 5)|isreal(x0)
        linalg_matrix_norm(x0, 1)|linalg_norm(x0, -1.)|linalg_vander(x0)
        corrcoef(torch.select(x0, 0, 1))|combinations(torch.select(x0, 0, 1), 3)
        combinations(torch.select(x0, 0, 1), 2, True)|linalg_lstsq(x0, x0)[0]|_lu_with_info(x0)[0]
        _lu_with_info(x0)[1]|linalg_matrix_rank(x0, torch.tensor(1.))
        linalg_matrix_rank(x0, rtol=0.5)|narrow(x0, 1, torch.tensor(-2), 2)|special_airy_ai(x0)
        histogram(x0, 4)[0]|histogram(x0, 4)[1]|histogram(x0, 3, density=True)[0]
        histogram(x0, 3, range=[-0.5, 0.5])[0]|histogram(x0, 3, weight=torch.abs(x0))[0]
        unique_dim(torch.gt(x0, 0.3), 0)[0]|unique_dim(x0, 1, True, True)[1]"""),
    (DIVIDED, """
        margin_ranking_loss(x0, x1, x1, 0., 0)|pairwise_distance(x0, x1)
        gcd(x0, x1)|lcm(x0, x1)|cov(x0)|diff(x0, prepend=x1)|vander(torch.select(x0, 0, 0))"""),
    (MIXED, """
        cummax(x0, 2)[1]|cummin(x0, 2)[1]|cummax(x0, 2)[0]|cummin(x0, 2)[0]
        nanmedian(x0)|copysign(x0, -1.)|amax(x0, [2])|amin(x0, [2])|argmax(x0, 2)|argmin(x0, 2)
        max(x0)|max(x0, 2)[1]|min(x0, 2)[0]|sort(x0)[0]|sort(x0, 2, True)[0]|argsort(x0, 2)
        topk(x0, 3)[0]|topk(x0, 5, 2, False)[1]|kthvalue(x0, 3)[0]|median(x0)|median(x0, 2)[1]
        median(x0, 2)[0]|quantile(x0, 0.4, 2)|nanquantile(x0, 0.4, 2)|nanmedian(x0, 2)[0]|msort(x0)
        masked_scatter(x0, torch.isnan(x0), torch.zeros_like(x0))"""),
    (ONE, """
        index_add(x0, 0, torch.tensor([0]), x0)|index_copy(x0, 0, torch.tensor([0]), x0)
        index_fill(x0, 0, torch.tensor([0]), 3.)|swapaxes(x0, 0, -1)|nanmedian(x0)
        quantile(x0, 0.5, -1)|cov(x0)|corrcoef(x0)|special_erfcx(x0)"""),
    (ALL_BUT_ONE, "nanmedian(x0, 1)[0]|nanmedian(x0, 1)[1]|nanmedian(x0)"),
    (EQUATIONS, """
        linalg_lstsq(x0, x1)[1]|linalg_lstsq(x0, x1)[2]|linalg_lstsq(x0, x1)[3]
        linalg_lstsq(x0, x1, driver="gelsd")[0]|linalg_lstsq(x0, x1, driver="gelsd")[1]
        linalg_lstsq(x0, x1, driver="gelsd")[2]|linalg_lstsq(x0, x1, driver="gelss")[3]
        linalg_lstsq(x0, x1, driver="gels")[1]|linalg_lstsq(x0, x1, 0.9, driver="gelss")[1]
        linalg_lstsq(x0, x1, 0.9, driver="gelsd")[2]"""),
    (STACKS, """
        linalg_solve(x0, x1)|linalg_solve(x0, x1, left=False)|linalg_solve_ex(x0, x1)[1]
        linalg_solve(x1, x0)|linalg_solve_ex(x1, x0)[1]"""),
    (NOTHING, "linalg_inv_ex(x0)[0]|linalg_inv_ex(x0)[1]|linalg_cholesky_ex(x0)[1]|linalg_det(x0)"),
    (IMAGES, """
        pad(x0, [-1, 2, 1, -2])|pad(x0, [2, -3, 0, 0], "circular")
        pad(x0, [-1, 2, 3, -2], "circular")|pad(x0, [1, -2, -1, 1], "replicate")
        pad(x0, [-3, -3])|pad(x0, [-2, 1, 1, -1], "reflect")
        conv_transpose2d(x0, x1, None, 1, 0, 1, 1, 2)
        conv_transpose2d(x0, x1, None, [2, 1], 1, [3, 1], 1, [4, 2])"""),
    (COUNTED, "bincount(x0)|bincount(x0, x1)|bincount(x0, None, 12)"),
    (NO_CHANNELS, "pixel_shuffle(x0, 2)|pixel_unshuffle(x0, 1)|cumprod(x0, 1)"),
    (PAIRS, """
        real(torch.complex(x0, x1))|imag(torch.complex(x0, x1))
        view_as_real(torch.complex(x0, x1))|angle(torch.complex(x0, x1))"""),
    (NO_COLUMNS, """
        sum(x0, 1)|mean(x0, 1)|prod(x0, 1)|softmax(x0, 1)|var(x0, [1])|cat([x0, x0], 1)
        matmul(x0, torch.t(x0))"""),
]
# fmt: on
ROWS = [
    pytest.param(xs, call.strip(), id=f"{call.strip()}-{'x'.join(map(str, xs[0].shape))}")
    for xs, calls in CALLS
    for line in calls.strip().split("\n")
    for call in line.split("|")
]


def check(xs, call, folder, passes=()):
    given = {f"x{i}": torch.from_numpy(x.copy()) for i, x in enumerate(xs)}
    home = torch if hasattr(torch, call.partition("(")[0]) else torch.ops.aten
    wanted = eval(f"home.{call}", {"home": home, "torch": torch, **given}).numpy()
    specs = [(x.dtype.name, x.shape) for x in xs]
    graph, weights = spellings.torch_script(folder, f"torch.{call}", specs)
    for apply in passes:
        apply(graph)
    (found,) = onnx_run.run(graph, *xs, weights=weights)
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize(("xs", "call"), ROWS)
@pytest.mark.filterwarnings("ignore")
def test_edges_are_what_torch_makes_of_them(xs, call, tmp_path):
    check(xs, call, tmp_path)


MANY = np.random.default_rng(2).choice(
    [math.nan, math.inf, -math.inf, 1, -2, 0.3],
    (9, 2, 3, 8, 7),
    p=[0.02, 0.03, 0.4, 0.2, 0.2, 0.15],
)
POOLINGS = """
    max_pool1d(x2, [3], [1])|max_pool1d(x2, [3], [2], [1])
    max_pool2d(x1, [3, 3], [2, 2], [1, 1])|max_pool2d(x1, [2, 3], [1, 2], [0, 1], [2, 1])
    max_pool2d(x1, [3, 3], [2, 2], [1, 1], [1, 1], True)|max_pool3d(x0, [2, 2, 2], [1, 2, 2], [1])
    adaptive_max_pool1d(x2, [1])[0]|adaptive_max_pool1d(x2, [4])[0]|adaptive_max_pool1d(x2, [4])[1]
    adaptive_max_pool2d(x1, [2, 7])[0]|adaptive_max_pool2d(x1, [3, 4])[1]"""


@pytest.mark.parametrize(
    "call", [call.strip() for line in POOLINGS.strip().split("\n") for call in line.split("|")]
)
def test_poolings_propagate_nan_on_request(call, tmp_path):
    """Only so: kernels of onnxruntime skip NaN or return it, by its position."""
    x = MANY.astype("float32")
    check([x, x[0], x[0, 0]], call, tmp_path, [simplify, propagate_nan])
