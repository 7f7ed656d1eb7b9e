"""Folders of encoder-decoder models become the graphs that Optimum's runtime classes run."""

import json
import sys
from dataclasses import replace

import numpy as np
import pytest

import converter
from converter.child.process import TORCH_PYTHON_VARIABLE
from converter.options import Options
from converter.verification.verify import verify
from formats.errors import UsageError

torch = pytest.importorskip("torch")
onnxruntime = pytest.importorskip("onnxruntime")
transformers = pytest.importorskip("transformers")

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("export_server")]
ENCODER, DECODER, WITH_PAST = "encoder_model", "decoder_model", "decoder_with_past_model"
TOKENS = {"vocab_size": 99, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2,
          "decoder_start_token_id": 2}  # fmt: skip
SIZE = {"d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
        "decoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48}  # fmt: skip
VISION = {"hidden_size": 40, "num_hidden_layers": 1, "num_attention_heads": 4,
          "intermediate_size": 48, "image_size": 32, "patch_size": 8}  # fmt: skip


def captioner():
    """Return a model whose encoder has another width than its decoder."""
    decoder = transformers.TrOCRConfig(
        **{**TOKENS, "d_model": 24, "decoder_layers": 2, "decoder_attention_heads": 4,
           "decoder_ffn_dim": 48, "max_position_embeddings": 64, "cross_attention_hidden_size": 40}
    )  # fmt: skip
    config = transformers.VisionEncoderDecoderConfig.from_encoder_decoder_configs(
        transformers.ViTConfig(**VISION), decoder
    )
    config.decoder_start_token_id, config.pad_token_id, config.eos_token_id = 2, 1, 2
    return transformers.VisionEncoderDecoderModel(config=config)


MODELS = {
    "t5": lambda: transformers.T5ForConditionalGeneration(transformers.T5Config(
        **{**TOKENS, "pad_token_id": 0}, d_model=32, d_kv=16, d_ff=48, num_layers=3,
        num_decoder_layers=2, num_heads=4, feed_forward_proj="gated-gelu",
    )),
    "bart": lambda: transformers.BartForConditionalGeneration(
        transformers.BartConfig(**TOKENS, **SIZE, max_position_embeddings=64)
    ),
    "whisper": lambda: transformers.WhisperForConditionalGeneration(transformers.WhisperConfig(
        **TOKENS, **SIZE, num_mel_bins=16, max_source_positions=32, max_target_positions=64,
        suppress_tokens=None, begin_suppress_tokens=None,
    )),
    "captioner": captioner,
}  # fmt: skip
TASKS = {"whisper": "automatic-speech-recognition", "captioner": "image-to-text"}
START = 2


def save(kind, folder):
    torch.manual_seed(0)
    model = MODELS[kind]().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim < 2:
                parameter.add_(torch.randn_like(parameter) * 0.2)
            else:
                parameter.normal_(0, 0.25)
    model.save_pretrained(folder)
    (folder / "tokenizer_config.json").write_text("{}")
    return model


def draw(kind, batch):
    if kind == "whisper":
        return {"input_features": torch.randn(batch, 16, 64)}
    if kind == "captioner":
        return {"pixel_values": torch.randn(batch, 3, 32, 32)}
    mask = torch.ones(batch, 7, dtype=torch.int64)
    mask[0, -2:] = 0
    return {"input_ids": torch.randint(3, 90, (batch, 7)), "attention_mask": mask}


class Runtime:
    """The graphs of a folder, called as Optimum's runtime class calls them."""

    def __init__(self, folder):
        self.sessions = {
            part: onnxruntime.InferenceSession(folder / f"{part}.onnx")
            for part in (ENCODER, DECODER, WITH_PAST)
        }

    def names(self, part):
        session = self.sessions[part]
        return [i.name for i in session.get_inputs()], [o.name for o in session.get_outputs()]

    def run(self, part, given):
        inputs, outputs = self.names(part)
        return dict(
            zip(outputs, self.sessions[part].run(None, {n: given[n] for n in inputs}), strict=True)
        )

    def generate(self, given, steps):
        """Return the likeliest tokens, and the logits of each step."""
        given = {name: value.numpy() for name, value in given.items()}
        states = self.run(ENCODER, given)["last_hidden_state"]
        ids = np.full((len(states), 1), START)
        fixed = {
            "encoder_hidden_states": states, "encoder_attention_mask": given.get("attention_mask")
        }  # fmt: skip
        found = self.run(DECODER, {"input_ids": ids, **fixed})
        past, logits = {}, []
        for step in range(steps):
            if step:
                found = self.run(WITH_PAST, {"input_ids": ids[:, -1:], **fixed, **past})
            past |= {
                name.replace("present", "past_key_values"): value
                for name, value in found.items() if name != "logits"
            }  # fmt: skip
            logits.append(found["logits"][:, -1])
            ids = np.concatenate([ids, logits[-1].argmax(-1, keepdims=True)], 1)
        return ids, np.stack(logits, 1)


@pytest.mark.parametrize("kind", [*MODELS])
def test_the_parts_of_a_model_generate_what_it_does(kind, tmp_path):
    folder, out = tmp_path / kind, tmp_path / "out"
    model = save(kind, folder)
    task = f"{TASKS.get(kind, 'text2text-generation')}-with-past"
    converter.convert(folder, to="onnx", out=out, options=Options(verify="weights", task=task))
    assert {"config.json", "generation_config.json", "tokenizer_config.json"} <= {
        p.name for p in out.iterdir()
    }
    assert (out / "config.json").read_bytes() == (folder / "config.json").read_bytes()
    runtime = Runtime(out)
    mask = ["encoder_attention_mask"] if kind in ("t5", "bart") else []
    own = [f"{i}.decoder.{kind}" for i in range(2) for kind in ("key", "value")]
    both = [f"{i}.{side}.{kind}" for i in range(2) for side in ("decoder", "encoder")
            for kind in ("key", "value")]  # fmt: skip
    assert runtime.names(ENCODER)[1] == ["last_hidden_state"]
    assert runtime.names(DECODER) == (
        ["input_ids", *mask, "encoder_hidden_states"], ["logits", *(f"present.{n}" for n in both)]
    )  # fmt: skip
    assert runtime.names(WITH_PAST) == (
        ["input_ids", *mask, *(f"past_key_values.{n}" for n in both)],
        ["logits", *(f"present.{n}" for n in own)],
    )
    for batch in (2, 1, 3):
        given = draw(kind, batch)
        ids, logits = runtime.generate(given, 6)
        with torch.no_grad():
            decoder_ids = torch.from_numpy(ids[:, :-1])
            expected = model(**given, decoder_input_ids=decoder_ids).logits.numpy()
        np.testing.assert_allclose(logits, expected, atol=1e-4 * np.abs(expected).max())
        assert (expected.argmax(-1) == ids[:, 1:]).all()


def test_every_part_is_verified_beside_the_module_that_it_is_and_written_without_a_cache(
    tmp_path, monkeypatch
):
    folder, out = tmp_path / "t5", tmp_path / "out"
    save("t5", folder)
    monkeypatch.setenv(TORCH_PYTHON_VARIABLE, sys.executable)
    options = Options(task="text2text-generation")
    made = converter.convert(folder, to="portable", out=out, options=options)
    assert {n: r.status for n, r in made.verification.graphs.items()} == {
        ENCODER: "passed", DECODER: "passed",
    }  # fmt: skip
    assert made.verification.level == "cpu"
    manifest = json.loads((out / "manifest.json").read_text())
    assert [g["file"] for g in (manifest["graph"], *manifest["graphs"])] == [
        "encoder_model.onnx", "decoder_model.onnx",
    ]  # fmt: skip
    decoder = onnxruntime.InferenceSession(out / "decoder_model.onnx")
    assert [o.name for o in decoder.get_outputs()] == ["logits"]
    found = verify(folder, out)  # the files' names say which part they are
    assert {report.status for report in found.graphs.values()} == {"passed"}


def test_triton_takes_a_repository_of_the_parts_or_one_of_them(tmp_path):
    folder, out = tmp_path / "t5", tmp_path / "repository"
    save("t5", folder)
    options = Options(verify="weights", task="text2text-generation")
    with pytest.raises(UsageError, match="2 graphs in one model"):
        converter.convert(folder, to="triton", device="cpu", out=out, options=options)
    options = replace(options, triton={"layout": "repository"})
    converter.convert(folder, to="triton", device="cpu", out=out, options=options)
    models = sorted(path.parent.parent.name for path in out.rglob("model.onnx"))
    assert models == ["t5", "t5_decoder_model"]  # the encoder is the first graph


def test_one_file_takes_one_part(tmp_path):
    folder = tmp_path / "t5"
    save("t5", folder)
    options = Options(verify="weights", task="text2text-generation")
    with pytest.raises(UsageError, match="2 graphs in one file"):
        converter.convert(folder, to="onnx", out=tmp_path / "a.onnx", options=options)
    options = Options(verify="weights", task="text2text-generation", signatures=(ENCODER,))
    converter.convert(folder, to="onnx", out=tmp_path / "a.onnx", options=options)
    session = onnxruntime.InferenceSession(tmp_path / "a.onnx")
    assert [i.name for i in session.get_inputs()] == ["input_ids", "attention_mask"]
    options = Options(verify="weights", task="text2text-generation", signatures=("head",))
    with pytest.raises(UsageError, match=r"no part 'head'; expected encoder_model, decoder_model"):
        converter.convert(folder, to="onnx", out=tmp_path / "b.onnx", options=options)
