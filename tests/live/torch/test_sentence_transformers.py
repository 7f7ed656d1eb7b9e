"""Folders that sentence-transformers saves become graphs that compute what the library computes."""

import json
import sys

import numpy as np
import onnx
import pytest

import converter
from converter.child.process import TORCH_PYTHON_VARIABLE
from formats.errors import CorruptError, SafetyError

torch = pytest.importorskip("torch")
onnxruntime = pytest.importorskip("onnxruntime")
transformers = pytest.importorskip("transformers")
library = pytest.importorskip("sentence_transformers")
from sentence_transformers.base.modules import Dense, Normalize, Transformer  # noqa: E402
from sentence_transformers.sentence_transformer import modules as models  # noqa: E402

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("export_server")]
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *(f"w{i}" for i in range(90))]
KEPT = ("modules.json", "config_sentence_transformers.json", "README.md")  # in the root folder
POOLING = ("cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken")


def enliven(module):
    """Give a module's vectors values that keep signals alive."""
    for parameter in module.parameters():
        if parameter.ndim < 2:
            torch.nn.init.normal_(parameter, 0.5, 0.2)
    return module.eval()


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """Return the folder of a small BERT with its tokenizer."""
    from tokenizers import Tokenizer, pre_tokenizers
    from tokenizers.models import WordLevel

    folder = tmp_path_factory.mktemp("bert")
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(WORDS), hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=48, max_position_embeddings=64,
    )  # fmt: skip
    enliven(transformers.BertModel(config)).save_pretrained(folder)
    tokenizer = Tokenizer(WordLevel({w: i for i, w in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", model_max_length=64,
        model_input_names=["input_ids", "attention_mask", "token_type_ids"],
    ).save_pretrained(folder)  # fmt: skip
    return folder


def save(base, folder, *modules):
    torch.manual_seed(1)
    model = library.SentenceTransformer(
        modules=[Transformer(str(base)), *map(enliven, modules)], device="cpu"
    )
    model.save_pretrained(str(folder))
    return model


def compare(path, model):
    session = onnxruntime.InferenceSession(path)
    assert [i.name for i in session.get_inputs()] == [
        "input_ids", "attention_mask", "token_type_ids",
    ]  # fmt: skip
    names = [o.name for o in session.get_outputs()]
    assert names == ["token_embeddings", "sentence_embedding"]
    for batch, length in ((2, 9), (1, 1), (3, 16)):
        given = {
            "input_ids": torch.randint(4, len(WORDS), (batch, length)),
            "attention_mask": torch.ones(batch, length, dtype=torch.int64),
            "token_type_ids": torch.zeros(batch, length, dtype=torch.int64),
        }
        if length > 1:
            given["attention_mask"][0, -3:] = 0
        with torch.no_grad():
            expected = model.forward(dict(given))
        found = session.run(names, {n: v.numpy() for n, v in given.items()})
        for name, array in zip(names, found, strict=True):
            scale = float(expected[name].abs().max())
            np.testing.assert_allclose(array, expected[name], atol=1e-5 * scale, err_msg=name)


def test_all_poolings_compute_what_the_library_does(base, tmp_path):
    model = save(base, tmp_path / "model", models.Pooling(32, POOLING))
    out = tmp_path / "model.onnx"
    converter.convert(tmp_path / "model", to="onnx", out=out, verify="weights")
    compare(out, model)


def test_a_bundle_has_the_tensors_and_the_graph_of_all_modules(base, tmp_path, monkeypatch):
    monkeypatch.setenv(TORCH_PYTHON_VARIABLE, sys.executable)  # the child that verifies is another
    dense = Dense(32, 12, activation_function=torch.nn.GELU())
    parts = [models.Pooling(32, "mean"), dense, models.LayerNorm(12), Normalize()]
    model = save(base, tmp_path / "model", *parts)
    made = converter.convert(tmp_path / "model", to="portable", out=tmp_path / "out")
    (report,) = made.verification.graphs.values()
    assert (report.status, made.verification.level) == ("passed", "cpu")
    compare(tmp_path / "out/model.onnx", model)
    assert {"2_Dense/linear.weight", "3_LayerNorm/norm.weight"} <= {*made.bundle.weights}
    assert {"modules.json", "1_Pooling/config.json"} <= {*made.bundle.assets}
    assert not [n for n in made.bundle.weights if n.startswith("graph.")]


def test_weights_that_are_missing_are_named(base, tmp_path):
    from safetensors.torch import load_file, save_file

    save(base, tmp_path / "model", models.Pooling(32, "mean"))
    path = tmp_path / "model/model.safetensors"
    weights = load_file(path)
    del weights["encoder.layer.1.output.dense.weight"]
    save_file(weights, path, {"format": "pt"})
    with pytest.raises(CorruptError, match=r"lacks tensors \(1\): .*1\.output\.dense\.weight"):
        converter.convert(tmp_path / "model", to="onnx", out=tmp_path / "x.onnx")


OWN = """
from pathlib import Path
from sentence_transformers.base.modules import Normalize
Path({mark!r}).touch()
class Twice(Normalize):
    def forward(self, features):
        features["sentence_embedding"] = features["sentence_embedding"] * 2
        return features
"""


def test_code_in_the_folder_runs_only_if_it_is_trusted(base, tmp_path):
    folder, mark = tmp_path / "model", tmp_path / "mark"
    save(base, folder, models.Pooling(32, "mean"), Normalize())
    (folder / "own.py").write_text(OWN.format(mark=str(mark)))
    entries = json.loads((folder / "modules.json").read_text())
    entries[2]["type"] = "own.Twice"
    (folder / "modules.json").write_text(json.dumps(entries))
    with pytest.raises(SafetyError, match=r"code in the folder: trust=\['own="):
        converter.convert(folder, to="onnx", out=tmp_path / "x.onnx")
    entries[2]["type"] = "os.system"
    (folder / "modules.json").write_text(json.dumps(entries))
    with pytest.raises(SafetyError, match="code in the folder"):
        converter.convert(folder, to="onnx", out=tmp_path / "x.onnx")
    assert not mark.exists()
    assert not (tmp_path / "x.onnx").exists()
    entries[2]["type"] = "own.Twice"
    (folder / "modules.json").write_text(json.dumps(entries))
    trust = [f"own={folder / 'own.py'}"]
    converter.convert(folder, to="onnx", out=tmp_path / "x.onnx", trust=trust, verify="weights")
    assert mark.exists()


def test_a_reranker_is_a_folder_of_transformers(base, tmp_path):
    config = transformers.BertConfig.from_pretrained(base, num_labels=1)
    folder = tmp_path / "base"
    enliven(transformers.BertForSequenceClassification(config)).save_pretrained(folder)
    transformers.AutoTokenizer.from_pretrained(base).save_pretrained(folder)
    library.CrossEncoder(str(folder), device="cpu").save_pretrained(str(tmp_path / "model"))
    out = tmp_path / "model.onnx"
    converter.convert(tmp_path / "model", to="onnx", out=out, verify="weights")
    assert [o.name for o in onnx.load(out).graph.output] == ["logits"]


def test_a_transformer_in_a_folder_of_its_own_keeps_its_tensors_there(base, tmp_path):
    folder, inner = tmp_path / "model", tmp_path / "model/0_Transformer"
    model = save(base, folder, models.Pooling(32, "mean"))
    inner.mkdir()
    for path in [p for p in folder.iterdir() if p.is_file() and p.name not in KEPT]:
        path.rename(inner / path.name)
    entries = json.loads((folder / "modules.json").read_text())
    entries[0]["path"] = "0_Transformer"
    (folder / "modules.json").write_text(json.dumps(entries))
    made = converter.convert(folder, to="onnx", out=tmp_path / "model.onnx", verify="weights")
    compare(tmp_path / "model.onnx", model)
    assert all(n.startswith("0_Transformer/") for n in made.bundle.weights)
