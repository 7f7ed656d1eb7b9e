"""A traced text-to-speech model: how long its sound is depends on the text, for every batch."""

import numpy as np
import pytest

import converter

torch = pytest.importorskip("torch")
onnxruntime = pytest.importorskip("onnxruntime")
transformers = pytest.importorskip("transformers")

pytestmark = pytest.mark.filterwarnings("ignore")
SMALL = {
    "vocab_size": 30, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
    "ffn_dim": 48, "flow_size": 32, "spectrogram_bins": 33, "upsample_initial_channel": 32,
    "upsample_rates": [4, 4], "upsample_kernel_sizes": [8, 8], "resblock_kernel_sizes": [3],
    "resblock_dilation_sizes": [[1, 3]], "prior_encoder_num_flows": 2,
    "prior_encoder_num_wavenet_layers": 2, "posterior_encoder_num_wavenet_layers": 2,
    "duration_predictor_num_flows": 2, "depth_separable_channels": 2,
    "depth_separable_num_layers": 2, "use_stochastic_duration_prediction": False,
    "wavenet_dilation_rate": 1,
}  # fmt: skip


class Spoken(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.model = transformers.VitsModel(transformers.VitsConfig(**SMALL))
        self.model.noise_scale = self.model.noise_scale_duration = 0.0

    def forward(self, input_ids, attention_mask):
        made = self.model(input_ids, attention_mask, return_dict=True)
        return made.waveform, made.sequence_lengths


def draw(batch, length):
    ids, mask = torch.randint(1, 30, (batch, length)), torch.ones(batch, length, dtype=torch.int64)
    mask[0, length - length // 4 :] = 0
    return ids, mask


@torch.no_grad()
def test_a_traced_model_gives_as_much_sound_for_any_batch_and_text(tmp_path):
    model = Spoken().eval()
    torch.jit.trace(model, draw(2, 9), check_trace=False).save(tmp_path / "m.pt")
    inputs = [f"{name}:int64:batch,sequence" for name in ("input_ids", "attention_mask")]
    out = tmp_path / "m.onnx"
    converter.convert(tmp_path / "m.pt", to="onnx", out=out, inputs=inputs, verify="none")
    session = onnxruntime.InferenceSession(out)
    lengths = set()
    for batch, length in ((2, 9), (3, 9), (1, 12), (4, 5), (1, 1), (2, 30)):
        given = draw(batch, length)
        expected = [v.numpy() for v in model(*given)]
        names = [i.name for i in session.get_inputs()]
        found = session.run(None, {n: v.numpy() for n, v in zip(names, given, strict=True)})
        for one, other in zip(found, expected, strict=True):
            assert one.shape == other.shape
            np.testing.assert_allclose(one, other, atol=1e-4)
        lengths.add(found[0].shape[1])
    assert len(lengths) > 3
