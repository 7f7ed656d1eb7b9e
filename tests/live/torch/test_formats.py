"""What torch writes today, read back: random checkpoints, every dtype, views, ties."""

import pytest

from formats.artifact import Artifact
from formats.catalog import read


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("seed", range(5))
def test_random_checkpoints(tmp_path, seed, zipped):
    torch = pytest.importorskip("torch")
    generator = torch.Generator().manual_seed(seed)

    def random(*shape, dtype=torch.float32):
        return (torch.randn(shape, generator=generator) * 9).to(dtype)

    dtypes = [torch.float16, torch.bfloat16, torch.float64, torch.int8, torch.uint8, torch.int64]
    dtypes += [torch.bool, torch.complex64, torch.int16, torch.int32]
    base = random(6, 8 + seed)
    state = {str(d): random(3, seed + 1, dtype=d) for d in dtypes}
    state |= {
        "base": base,
        "tied": base,
        "transposed": base.T,
        "row": base[2, 1:5],
        "step": base[::2],
    }
    state |= {"scalar": random(), "empty": torch.zeros(0, 3), "expanded": random(1, 3).expand(4, 3)}
    path = tmp_path / "checkpoint.pt"
    torch.save(
        {"epoch": seed, "model": state},
        path,
        _use_new_zipfile_serialization=zipped,
    )
    weights = read(Artifact(path)).weights
    assert set(weights) == {f"model.{name}" for name in state}
    for name, tensor in state.items():
        found = weights[f"model.{name}"]
        assert found.shape == tuple(tensor.shape)
        assert found.dtype.name == str(tensor.dtype).removeprefix("torch.")
        contiguous = tensor.contiguous()
        expected = (
            contiguous.view(torch.uint8)
            if tensor.dim()
            else contiguous.reshape(1).view(torch.uint8)
        )
        assert found.tobytes() == expected.numpy().tobytes()
    assert weights["model.tied"].identity == weights["model.base"].identity
