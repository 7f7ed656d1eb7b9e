"""Python's loops over free sizes, exported as `scan`, and pools: graphs compute what torch does."""

import argparse

import numpy as np
import pytest

import converter
from converter.capture import loops
from converter.options import Options

torch = pytest.importorskip("torch")
onnxruntime = pytest.importorskip("onnxruntime")
from converter.capture import torch_exporter  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


class Recurrent(torch.nn.Module):
    """A state, rows that are appended, and rows that are written."""

    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(4, 4)

    def forward(self, x):
        state, step = torch.zeros(x.shape[0], 4), 1.0
        rows, written = [state[:, None]], torch.ones_like(x).transpose(0, 1)
        for i in range(1, x.shape[1]):
            row = x[:, i, :] * step
            state = self.inner(row).tanh() + state * x[..., i, :2].sum()
            if step > 0:
                state = state * 2.0
            rows.append(x[:, i : i + 1] + state[:, None])
            written[i, :, 1:3] = state[:, 1:3]
        return state, torch.cat(rows, dim=1), written


class Columns(torch.nn.Module):
    """Rows that are stacked along the last axis, an axis after an ellipsis, and no state."""

    def forward(self, x):
        made, out = [], torch.zeros_like(x)
        for i in range(x.size(1)):
            made.append(x[:, i].cumsum(-1))
            out[..., i, :] = (x[:, i] * 3).to(out.dtype)
        return torch.stack(made, dim=-1), torch.stack(made), out


class Backwards(torch.nn.Module):
    """Steps from the end, with an augmented assignment."""

    def forward(self, x):
        total, made = torch.zeros(4), []
        for i in range(x.shape[1] - 1, -1, -1):
            total += x[0, i]
            made.append(total.clone())
        return torch.stack(made, 0), total


class Pooled(torch.nn.Module):
    """Pools along the free axis, which torch.export fixes of itself."""

    def __init__(self):
        super().__init__()
        self.pool = torch.nn.MaxPool1d(3, 2, padding=1, ceil_mode=True)

    def forward(self, x):
        x = x.transpose(1, 2)
        return self.pool(x), torch.max_pool1d(x, [2]), torch.nn.functional.max_pool1d(x, 2, 1)


class Chunked(torch.nn.Module):
    """Chunks of an axis that is a multiple of their number."""

    def forward(self, x):
        a, b, c = torch.cat([x, x * 2, x * 3], 1).chunk(3, dim=1)
        return a + b, torch.chunk(c.transpose(1, 2), 2, 1)[1]


class Lengths(torch.nn.Module):
    """Lengths of tensors as Python has them, of lists too."""

    def forward(self, x):
        parts = [x.flatten(1), x.flatten(1) + len(x)]
        return torch.cat(parts, 1).reshape(len(x), len(parts), -1), x.new_ones(len(x[0]))


class Leaving(torch.nn.Module):
    """Loops that are left as they are, for they do more than a round of `scan` can."""

    def __init__(self):
        super().__init__()
        self.__rounds = 3

    def forward(self, x):
        for i in range(self.__rounds):
            x = x * i
        return self.add(x)

    def add(self, x):
        for i in range(x.shape[1]):
            if i > 1:
                break
        for i in range(3):
            x = x + i
        return x


def export(module, path, size):
    axes = {"x": {0: "batch", 1: "steps"}}
    loaded = argparse.Namespace(module=module.eval(), program=None)
    source = torch_exporter.Source(loaded, ["x"], (torch.randn(2, size, 4),), {}, axes)
    with torch.no_grad():
        torch.export.save(torch_exporter.export_module(torch, source), path)


@pytest.mark.parametrize("kind", [Recurrent, Columns, Backwards, Pooled, Chunked, Lengths])
def test_a_free_size_stays_free(kind, tmp_path):
    torch.manual_seed(0)
    module = kind()
    export(module, tmp_path / "a.pt2", 5)
    converter.convert(
        tmp_path / "a.pt2", to="onnx", out=tmp_path / "a.onnx", options=Options(verify="weights")
    )
    session = onnxruntime.InferenceSession(tmp_path / "a.onnx")
    for batch, size in ((2, 5), (3, 9), (1, 2)):
        x = torch.randn(batch, size, 4)
        with torch.no_grad():
            expected = module(x)
        found = session.run(None, {"x": x.numpy()})
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(one, other.numpy(), rtol=1e-5, atol=1e-5)


def test_functions_are_themselves_again():
    before = Recurrent.forward.__code__
    with loops.as_scans(torch.nn.Sequential(Recurrent(), Leaving())):
        assert Recurrent.forward.__code__ is not before
        x = torch.randn(2, 6, 4)
        assert all(t.isfinite().all() for t in Recurrent()(x))  # whose number of rounds is known
        assert Leaving()(x).tolist() == torch.full_like(x, 3.0).tolist()
    assert Recurrent.forward.__code__ is before
    assert not set(Recurrent.forward.__globals__) & {loops.HERE}


def test_other_loops_are_not_rewritten():
    assert loops.rewrite(Leaving.forward) is None
    code = loops.rewrite(Leaving.add)
    assert code is not None
    assert [n for n in code.co_varnames if n.startswith("_step")] == ["_step_1"]
