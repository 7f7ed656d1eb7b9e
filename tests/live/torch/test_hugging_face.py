"""Folders that transformers saves become graphs that compute what the model computes."""

import json
import shutil
import sys

import numpy as np
import onnx
import pytest

import converter
from converter.child.process import TORCH_PYTHON_VARIABLE
from converter.options import Options
from converter.verification.verify import verify
from formats.errors import CorruptError, SafetyError, UsageError

torch = pytest.importorskip("torch")
onnxruntime = pytest.importorskip("onnxruntime")
transformers = pytest.importorskip("transformers")

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("export_server")]
TEXT = {"vocab_size": 99, "max_position_embeddings": 64}
SIZE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
        "intermediate_size": 48}  # fmt: skip
AUDIO = {**SIZE, "conv_dim": [16] * 3, "conv_kernel": [10, 3, 2], "conv_stride": [5, 2, 2],
         "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4}  # fmt: skip
VISION = {**SIZE, "image_size": 32, "patch_size": 8}
MODELS = {
    "bert": ("BertForSequenceClassification", {**TEXT, **SIZE, "num_labels": 3}),
    "roberta": ("RobertaModel", {**TEXT, **SIZE, "type_vocab_size": 1, "pad_token_id": 1}),
    "gpt2": ("GPT2LMHeadModel", {"vocab_size": 99, "n_positions": 64, "n_embd": 32, "n_layer": 2,
                                 "n_head": 4}),
    "llama": ("LlamaForCausalLM", {**TEXT, **SIZE, "num_key_value_heads": 2}),
    "t5": ("T5ForConditionalGeneration", {"vocab_size": 99, "d_model": 32, "d_kv": 8, "d_ff": 48,
                                          "num_layers": 2, "num_heads": 4}),
    "vit": ("ViTForImageClassification", VISION),
    "clip": ("CLIPModel", {"text_config": {**TEXT, **SIZE, "eos_token_id": 98},
                           "vision_config": VISION, "projection_dim": 16}),
    "whisper": ("WhisperForConditionalGeneration", {
        "vocab_size": 99, "d_model": 32, "encoder_layers": 1, "decoder_layers": 1,
        "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 48,
        "decoder_ffn_dim": 48, "num_mel_bins": 16, "max_source_positions": 32,
        "max_target_positions": 32, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
        "decoder_start_token_id": 1, "suppress_tokens": None, "begin_suppress_tokens": None,
    }),
    "sew": ("SEWForSequenceClassification", AUDIO),
    "sew-d": ("SEWDForSequenceClassification", AUDIO),  # torch exports it for multiples of 40
}  # fmt: skip
# Inputs and outputs as Optimum names them.
EXPECTED = {
    "bert": (["input_ids", "attention_mask", "token_type_ids"], ["logits"]),
    "roberta": (["input_ids", "attention_mask"], ["last_hidden_state", "pooler_output"]),
    "gpt2": (["input_ids", "attention_mask"], ["logits"]),
    "llama": (["input_ids", "attention_mask"], ["logits"]),
    "t5": (["input_ids", "attention_mask", "decoder_input_ids"],
           ["logits", "encoder_last_hidden_state"]),
    "vit": (["pixel_values"], ["logits"]),
    "clip": (["input_ids", "pixel_values", "attention_mask"],
             ["logits_per_image", "logits_per_text", "text_embeds", "image_embeds"]),
    "whisper": (["input_features", "decoder_input_ids"], ["logits", "encoder_last_hidden_state"]),
    "sew": (["input_values"], ["logits"]),
    "sew-d": (["input_values"], ["logits"]),
}  # fmt: skip


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Return the folder of each model, with weights that keep signals alive, and the model."""
    made = {}
    for kind, (class_name, settings) in MODELS.items():
        torch.manual_seed(0)
        config = transformers.CONFIG_MAPPING[kind](**settings)
        model = getattr(transformers, class_name)(config).eval()
        for parameter in model.parameters():
            if parameter.ndim < 2:
                torch.nn.init.normal_(parameter, 0.5, 0.2)
        folder = tmp_path_factory.mktemp(kind)
        model.save_pretrained(folder)
        made[kind] = folder, model
    return made


def draw(model, names, batch, length):
    sizes = {"pixel_values": (batch, 3, 32, 32), "input_features": (batch, 16, 64),
             "input_values": (batch, 40 * length)}  # fmt: skip
    given = {}
    for name in names:
        if name in sizes:
            given[name] = torch.randn(sizes[name])
        elif name == "attention_mask":
            given[name] = torch.ones(batch, length, dtype=torch.int64)
            given[name][0, -2:] = 0
        else:
            shape = (batch, length + 2 if name.startswith("decoder") else length)
            given[name] = torch.randint(0, 2 if "type" in name else 90, shape)
    return given


@pytest.mark.parametrize("kind", [*MODELS])
def test_the_graph_of_a_folder_computes_what_its_model_does(kind, folders, tmp_path):
    folder, model = folders[kind]
    out = tmp_path / "model.onnx"
    converter.convert(folder, to="onnx", out=out, options=Options(verify="weights"))
    session = onnxruntime.InferenceSession(out)
    names = [i.name for i in session.get_inputs()]
    assert (sorted(names), [o.name for o in session.get_outputs()]) == (
        sorted(EXPECTED[kind][0]), EXPECTED[kind][1],
    )  # fmt: skip
    for batch, length in ((2, 9), (1, 5), (3, 16)):
        given = draw(model, names, batch, length)
        with torch.no_grad():
            expected = model(**given, return_dict=True)
        found = session.run(None, {n: v.numpy() for n, v in given.items()})
        for name, array in zip(EXPECTED[kind][1], found, strict=True):
            scale = float(expected[name].abs().max())
            np.testing.assert_allclose(array, expected[name], atol=1e-4 * scale)


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_a_decoder_with_its_cache_generates_what_the_model_does(kind, folders, tmp_path):
    folder, model = folders[kind]
    out = tmp_path / "model.onnx"
    converter.convert(
        folder, to="onnx", out=out,
        options=Options(verify="weights", task="text-generation-with-past"),
    )  # fmt: skip
    session = onnxruntime.InferenceSession(out)
    inputs, outputs = session.get_inputs(), [o.name for o in session.get_outputs()]
    past = [i for i in inputs if i.name.startswith("past_key_values.")]
    assert [i.name for i in past[:2]] == ["past_key_values.0.key", "past_key_values.0.value"]
    assert outputs[:3] == ["logits", "present.0.key", "present.0.value"]
    ids = torch.randint(3, 90, (2, 5))
    cache = {i.name: np.zeros((2, i.shape[1], 0, i.shape[3]), "float32") for i in past}
    step = ids
    for _ in range(4):  # the first step has an empty cache, and several tokens
        length = ids.shape[1]
        places = np.arange(length - step.shape[1], length)
        given = {
            "input_ids": step.numpy(), "attention_mask": np.ones((2, length), "int64"),
            "position_ids": np.broadcast_to(places, step.shape).copy(), **cache,
        }  # fmt: skip
        found = dict(zip(outputs, session.run(None, given), strict=True))
        with torch.no_grad():
            expected = model(input_ids=ids).logits[:, -step.shape[1] :].numpy()
        scale = np.abs(expected).max()
        np.testing.assert_allclose(found["logits"], expected, atol=1e-4 * scale)
        cache = {i.name: found[i.name.replace("past_key_values", "present")] for i in past}
        step = torch.from_numpy(found["logits"][:, -1:].argmax(-1))
        ids = torch.cat([ids, step], 1)


def test_a_task_chooses_the_head(folders, tmp_path):
    folder, model = folders["bert"]
    out = tmp_path / "model.onnx"
    options = Options(verify="weights", task="feature-extraction")
    converter.convert(folder, to="onnx", out=out, options=options)
    session = onnxruntime.InferenceSession(out)
    given = draw(model, EXPECTED["bert"][0], 2, 7)
    with torch.no_grad():
        expected = model.bert(**given).last_hidden_state
    found = session.run(["last_hidden_state"], {n: v.numpy() for n, v in given.items()})[0]
    np.testing.assert_allclose(found, expected, atol=1e-4)
    for task, error, message in (
        ("fill-mask", CorruptError, r"lacks tensors of BertForMaskedLM \(\d+\)"),
        ("translation", UsageError, "task 'translation' is not known"),
    ):
        with pytest.raises(error, match=message):
            converter.convert(folder, to="onnx", out=tmp_path / "x", options=Options(task=task))


def test_a_bundle_of_a_pickled_folder_holds_its_graph_verified_beside_the_model(
    folders, tmp_path, monkeypatch
):
    monkeypatch.delenv(TORCH_PYTHON_VARIABLE)  # the child that verifies is another
    _, model = folders["gpt2"]
    folder = tmp_path / "pickled"
    folder.mkdir()
    torch.save(model.state_dict(), folder / "pytorch_model.bin")
    model.config.save_pretrained(folder)
    made = converter.convert(folder, to="portable", out=tmp_path / "out")
    (report,) = made.verification.graphs.values()
    assert report.status == "passed"
    assert [o.name for o in onnx.load(tmp_path / "out/model.onnx").graph.output] == ["logits"]


@pytest.mark.parametrize("shards", ["50GB", "20KB"])
def test_a_pickled_folder_becomes_one_that_from_pretrained_loads(shards, folders, tmp_path):
    _, model = folders["gpt2"]  # whose embeddings are tied
    folder, out = tmp_path / "pickled", tmp_path / "out"
    folder.mkdir()
    torch.save(model.state_dict(), folder / "pytorch_model.bin")
    model.config.save_pretrained(folder)
    (folder / "vocab.json").write_text('{"a": 0}')
    converter.convert(folder, to="hf", out=out, options=Options(max_shard_size=shards))
    assert (out / "vocab.json").read_bytes() == b'{"a": 0}'
    assert (out / "config.json").read_bytes() == (folder / "config.json").read_bytes()
    assert not list(out.glob("*.bin"))
    assert (len(list(out.glob("*.safetensors"))) > 1) == (shards == "20KB")
    loaded, report = transformers.GPT2LMHeadModel.from_pretrained(out, output_loading_info=True)
    assert not report["missing_keys"]
    ids = torch.randint(0, 99, (2, 7))
    with torch.no_grad():
        torch.testing.assert_close(loaded(ids).logits, model(ids).logits, rtol=0, atol=0)


def test_weights_that_are_missing_are_named(folders, tmp_path):
    from safetensors.torch import load_file, save_file

    folder, _ = folders["vit"]
    weights = load_file(folder / "model.safetensors")
    del weights["vit.layernorm.weight"]
    lacking = tmp_path / "lacking"
    lacking.mkdir()
    save_file(weights, lacking / "model.safetensors", {"format": "pt"})
    (lacking / "config.json").write_text((folder / "config.json").read_text())
    with pytest.raises(CorruptError, match=r"lacks tensors of .* \(1\): vit\.layernorm\.weight"):
        converter.convert(lacking, to="onnx", out=tmp_path / "x.onnx")


OWN = """
import torch
from pathlib import Path
from transformers import PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput

Path({mark!r}).touch()

class OwnConfig(PretrainedConfig):
    model_type = "own"

class OwnModel(PreTrainedModel):
    config_class = OwnConfig

    def __init__(self, config):
        super().__init__(config)
        self.table = torch.nn.Embedding(9, 4)
        self.post_init()

    def forward(self, input_ids, return_dict=None):
        return BaseModelOutput(last_hidden_state=self.table(input_ids) * 2)
"""


def test_code_in_the_folder_runs_only_if_it_is_trusted(tmp_path, monkeypatch):
    from safetensors.torch import save_file

    monkeypatch.setenv("HF_MODULES_CACHE", str(tmp_path / "cache"))
    folder, mark = tmp_path / "own", tmp_path / "mark"
    folder.mkdir()
    (folder / "modeling_own.py").write_text(OWN.format(mark=str(mark)))
    (folder / "config.json").write_text(json.dumps({
        "model_type": "own", "architectures": ["OwnModel"],
        "auto_map": {"AutoConfig": "modeling_own.OwnConfig", "AutoModel": "modeling_own.OwnModel"},
    }))  # fmt: skip
    weights = torch.randn(9, 4)
    save_file({"table.weight": weights}, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(SafetyError, match="code in the folder: trust="):
        converter.convert(folder, to="onnx", out=tmp_path / "x.onnx")
    assert not mark.exists()
    trust = [f"modeling_own={folder / 'modeling_own.py'}"]
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(folder, elsewhere)
    config = (
        (folder / "config.json").read_text().replace("modeling_own.", "other/own--modeling_own.")
    )
    (elsewhere / "config.json").write_text(config)
    with pytest.raises(SafetyError, match="that of another folder"):
        converter.convert(elsewhere, to="onnx", out=tmp_path / "x.onnx", trust=trust)
    assert not (tmp_path / "x.onnx").exists()
    converter.convert(folder, to="onnx", out=tmp_path / "x.onnx", trust=trust, verify="weights")
    assert mark.exists()
    (found,) = onnxruntime.InferenceSession(tmp_path / "x.onnx").run(
        None, {"input_ids": np.array([[1, 8]])}
    )
    np.testing.assert_array_equal(found, weights[[1, 8]][None] * 2)


def llama(folder):
    torch.manual_seed(3)
    kind, settings = MODELS["llama"]
    config = transformers.AutoConfig.for_model("llama", **settings)
    model = getattr(transformers, kind)(config).eval()
    model.save_pretrained(folder)
    return model


def compare(graph, model):
    ids = torch.arange(12).reshape(2, 6) % 7
    given = {"input_ids": ids.numpy(), "attention_mask": np.ones((2, 6), np.int64)}
    (found,) = onnxruntime.InferenceSession(graph).run(["logits"], given)
    with torch.no_grad():
        wanted = model(input_ids=ids, attention_mask=torch.ones(2, 6)).logits.numpy()
    np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-4)


def to_int8(tensor):
    """Return a matrix as bitsandbytes stores it, and the floats that it makes of that."""
    scale = tensor.abs().amax(1)
    values = (tensor / scale[:, None] * 127).round().to(torch.int8)
    floats = values * scale[:, None] * 7.874015718698502e-3
    return {"weight": values, "SCB": scale}, floats


def to_gptq(tensor, bits=4, group=8):
    """Return a matrix as GPTQ stores it, inputs in any order, and the floats that it makes."""
    outputs, inputs = tensor.shape
    places = torch.randperm(inputs) % (inputs // group)
    zeros = torch.randint(1, 2**bits, (outputs, inputs // group))
    scales = torch.rand(outputs, inputs // group) / 50
    values = (tensor / scales[:, places] + zeros[:, places]).round().clip(0, 2**bits - 1).int()

    def pack(rows):
        words = torch.zeros(len(rows) * bits // 32, rows.shape[1], dtype=torch.int32)
        for i, row in enumerate(rows.int()):
            words[i * bits // 32] |= row << i * bits % 32
        return words

    floats = (values - zeros[:, places]) * scales[:, places]
    parts = {
        "qweight": pack(values.T), "qzeros": pack(zeros - 1).T, "scales": scales.T,
        "g_idx": places.int(),
    }  # fmt: skip
    return parts, floats


@pytest.mark.parametrize(
    ("quantize", "settings", "dequantize"),
    [
        (to_int8, {"quant_method": "bitsandbytes", "load_in_8bit": True}, True),
        (to_int8, {"quant_method": "bitsandbytes", "load_in_8bit": True}, False),
        (to_gptq, {"quant_method": "gptq", "bits": 4, "desc_act": True}, False),
    ],
)
def test_a_quantised_folder_becomes_a_graph(quantize, settings, dequantize, tmp_path, monkeypatch):
    monkeypatch.setenv(TORCH_PYTHON_VARIABLE, sys.executable)
    from safetensors.torch import load_file, save_file

    folder = tmp_path / "quantised"
    model = llama(folder)
    tensors, stored = load_file(folder / "model.safetensors"), {}
    for name, tensor in tensors.items():
        if not name.endswith("_proj.weight"):
            stored[name] = tensor
            continue
        parts, floats = quantize(tensor)
        front = name.removesuffix("weight")
        stored |= {f"{front}{role}": part.contiguous() for role, part in parts.items()}
        model.get_submodule(front[:-1]).weight.data = floats
    save_file(stored, folder / "model.safetensors", {"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = settings
    (folder / "config.json").write_text(json.dumps(config))
    out, options = tmp_path / "out.onnx", Options(dequantize=dequantize)
    made = converter.convert(folder, to="onnx", out=out, options=options)
    assert made.verification.level == "cpu"
    assert made.verification.weights.tensors == len(tensors)
    compare(out, model)
    assert verify(folder, out, options=options).level == "cpu"
    count = sum(node.op_type == "DequantizeLinear" for node in onnx.load(out).graph.node)
    assert count == (0 if dequantize else sum(name.endswith("_proj.weight") for name in tensors))


def test_an_adapter_becomes_the_graph_of_its_merged_base(tmp_path, monkeypatch):
    monkeypatch.setenv(TORCH_PYTHON_VARIABLE, sys.executable)
    from safetensors.torch import save_file

    base, folder = tmp_path / "base", tmp_path / "adapter"
    model = llama(base)
    folder.mkdir()
    layer = model.model.layers[1].self_attn.q_proj
    a, b = torch.randn(4, layer.in_features) / 4, torch.randn(layer.out_features, 4) / 4
    front = "base_model.model.model.layers.1.self_attn.q_proj"
    parts = {f"{front}.lora_A.weight": a, f"{front}.lora_B.weight": b}
    save_file(parts, folder / "adapter_model.safetensors", {"format": "pt"})
    (folder / "adapter_config.json").write_text(json.dumps({
        "peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj"],
    }))  # fmt: skip
    layer.weight.data += 2 * b @ a
    out, options = tmp_path / "out.onnx", Options(merge_adapter=base)
    assert (
        converter.convert(folder, to="onnx", out=out, options=options).verification.level == "cpu"
    )
    compare(out, model)
    assert verify(folder, out, options=options).level == "cpu"
