"""Folders of Hugging Face's through our conversion: each architecture of transformers, small.

    PYTHONPATH=. python benchmarks/hugging_face.py [--names bert,gpt2] [--limit 80] [--peer]

For each type of model, a configuration with few small layers and random weights is saved, loaded
as ``--to onnx`` does, exported, lowered, and run by onnxruntime beside the model itself, for two
batch and sequence sizes. A row says `ok`, `wrong`, `not supported` (ours), or `no program` (the
model is not built from such a configuration, does not run, or torch does not export it), `error`
(the graph does not run: torch.export has fixed an axis, for one), with the seconds that we and, with --peer, torch.onnx's dynamo exporter take after torch.export.
Nothing is asserted. Needs torch, transformers and onnxruntime; the peer needs onnxscript.
"""

import argparse
import contextlib
import importlib.util
import io
import sys
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import onnxruntime
import torch
import transformers
from transformers.models.auto import modeling_auto

import converter
from formats.errors import ConvertError

HERE = Path(__file__).resolve().parents[1] / "converter" / "capture"
TASKS = (
    "CAUSAL_LM", "SEQUENCE_CLASSIFICATION", "SEQ_TO_SEQ_CAUSAL_LM", "IMAGE_CLASSIFICATION",
    "AUDIO_CLASSIFICATION", "SPEECH_SEQ_2_SEQ", "OBJECT_DETECTION", "ZERO_SHOT_IMAGE_CLASSIFICATION",
)  # fmt: skip
SMALL = {
    "vocab_size": 99, "hidden_size": 32, "d_model": 32, "n_embd": 32, "dim": 32, "embedding_size": 32,
    "num_hidden_layers": 2, "n_layer": 2, "n_layers": 2, "num_layers": 2, "encoder_layers": 2,
    "decoder_layers": 2, "num_attention_heads": 4, "n_head": 4, "n_heads": 4, "num_heads": 4,
    "encoder_attention_heads": 4, "decoder_attention_heads": 4, "num_key_value_heads": 2,
    "head_dim": 8, "d_kv": 8, "intermediate_size": 48, "d_ff": 48, "ffn_dim": 48, "hidden_dim": 48,
    "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "max_position_embeddings": 64,
    "n_positions": 64, "image_size": 32, "patch_size": 8, "num_experts": 4, "num_local_experts": 4,
    "moe_intermediate_size": 16, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    "projection_dim": 32, "num_mel_bins": 16, "max_source_positions": 32, "rotary_dim": 4,
}  # fmt: skip


TOKENS = ("pad_token_id", "bos_token_id", "eos_token_id")
LARGEST = 20_000_000  # parameters


def load_child(name: str):
    """Return a module of the child that exports."""
    spec = importlib.util.spec_from_file_location(name, HERE / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


exporter, pretrained = load_child("torch_exporter"), load_child("pretrained")


def shrink(settings: dict) -> dict:
    """Return the settings of a small configuration, with those inside of it made small, too."""
    small = dict(settings)
    layers = settings.get("num_hidden_layers")
    for name, value in settings.items():
        if isinstance(value, list) and len(value) == layers:  # one for each layer
            small[name] = value[: SMALL["num_hidden_layers"]]
        elif isinstance(value, dict) and "model_type" in value:
            small[name] = shrink(value)
        elif name in SMALL and isinstance(value, int) and not isinstance(value, bool):
            small[name] = SMALL[name]
    return small


def save_model(kind: str, class_name: str, folder: Path) -> None:
    config = transformers.CONFIG_MAPPING[kind]()
    settings = shrink(config.to_dict())
    settings.pop("model_type")
    settings |= {n: SMALL[n] for n in TOKENS if settings.get(n, 0) is None}
    fresh = type(config)(**settings)
    torch.manual_seed(0)
    with torch.device("meta"):
        size = sum(p.numel() for p in getattr(transformers, class_name)(fresh).parameters())
    if size > LARGEST:
        raise ValueError(f"{size} parameters in spite of a small configuration")
    model = getattr(transformers, class_name)(fresh).eval()
    for parameter in model.parameters():  # signals stay alive
        if parameter.ndim < 2:
            torch.nn.init.normal_(parameter, 0.5, 0.2)
    model.save_pretrained(folder)


def draw(specs, sizes: dict[str, int]) -> dict[str, torch.Tensor]:
    given = {}
    for spec in specs:
        shape = [sizes.get(n, 7) if isinstance(n, str) else n for n in spec["shape"]]
        if spec["name"] == "samples" or "samples" in spec["shape"]:
            shape = [sizes["batch"], 4000]
        if spec["dtype"] == "float32":
            given[spec["name"]] = torch.randn(shape)
        elif "mask" in spec["name"]:
            given[spec["name"]] = torch.ones(shape, dtype=torch.int64)
        else:
            high = 2 if "type" in spec["name"] else 90
            given[spec["name"]] = torch.randint(3 if high > 2 else 0, high, shape)
            if spec["name"] == "input_ids":
                given["input_ids"][:, -1] = SMALL["eos_token_id"]
    return given


def measure(kind: str, class_name: str, *, peer: bool) -> tuple[str, str, float, float]:
    """Return the outcome, words about it, our seconds after torch.export, and the peer's."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        try:
            save_model(kind, class_name, home / "model")
            module, specs = pretrained.load(torch, home / "model", "cpu", {})
            module.eval()
            given = draw(specs, {"batch": 2, "sequence": 12, "decoder_sequence": 10})
            axes = {s["name"]: {i: n for i, n in enumerate(s["shape"]) if isinstance(n, str)}
                    for s in specs}  # fmt: skip
            with torch.no_grad():
                module(**given)
                loaded = argparse.Namespace(module=module, program=None)
                source = exporter.Source(loaded, [*given], (), given, axes)
                program = exporter.export_module(torch, source)
                torch.export.save(program, home / "program.pt2")
        except Exception as e:  # noqa: BLE001 - whatever transformers and torch raise
            return "no program", f"{type(e).__name__}: {e}".splitlines()[0][:150], 0, 0
        begin = time.perf_counter()
        try:
            options = converter.Options(verify="none")
            converter.convert(home / "program.pt2", to="onnx", out=home / "a.onnx", options=options)
        except ConvertError as e:
            return "not supported", str(e).splitlines()[0][:150], 0, 0
        ours, theirs = time.perf_counter() - begin, 0.0
        session = onnxruntime.InferenceSession(home / "a.onnx")
        for sizes in ({"batch": 2, "sequence": 12, "decoder_sequence": 10},
                      {"batch": 3, "sequence": 5, "decoder_sequence": 4}):  # fmt: skip
            given = draw(specs, sizes)
            with torch.no_grad():
                expected = [v.numpy() for v in module(**given).values()]
            names = [i.name for i in session.get_inputs()]
            try:
                found = session.run(None, {n: given[n].numpy() for n in names})
            except Exception as e:  # noqa: BLE001 - whatever onnxruntime raises
                return "error", str(e).replace("\n", " ")[:150], ours, theirs
            for one, other in zip(found, expected, strict=True):
                scale = max(np.abs(other[np.isfinite(other)]).max(initial=0), 1e-3)
                if one.shape != other.shape:
                    return "wrong", f"shape {one.shape}, not {other.shape}", ours, theirs
                if not np.allclose(one, other, rtol=1e-3, atol=1e-3 * scale, equal_nan=True):
                    return "wrong", f"by {np.abs(one - other).max() / scale:.1e}", ours, theirs
        if peer:
            begin = time.perf_counter()
            with contextlib.redirect_stdout(io.StringIO()):
                try:
                    torch.onnx.export(program, (), home / "b.onnx", dynamo=True, verbose=False)
                    theirs = time.perf_counter() - begin
                except Exception:  # noqa: BLE001 - the peer's failure is a missing figure
                    theirs = float("nan")
        return "ok", f"{len(names)} inputs, {len(found)} outputs", ours, theirs


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--names", default="")
    parser.add_argument("--tasks", default=",".join(TASKS))
    parser.add_argument("--limit", type=int, default=10_000)
    parser.add_argument("--peer", action="store_true")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    names = set(filter(None, asked.names.split(",")))
    rows: dict[tuple[str, str], str] = {}
    for task in asked.tasks.split(","):
        table = getattr(modeling_auto, f"MODEL_FOR_{task}_MAPPING_NAMES", {})
        for kind, classes in table.items():
            class_name = classes if isinstance(classes, str) else classes[0]
            if names and kind not in names:
                continue
            rows.setdefault((kind, class_name), task)
    counts: Counter[str] = Counter()
    seconds = []
    for kind, class_name in [*rows][: asked.limit]:
        with contextlib.redirect_stderr(io.StringIO()):
            state, words, ours, theirs = measure(kind, class_name, peer=asked.peer)
        counts[state] += 1
        seconds += [(ours, theirs)] if state == "ok" else []
        print(f"{state:14}{class_name:44}{ours:6.2f}{theirs:8.2f}  {words}", flush=True)
    print(", ".join(f"{state} {count}" for state, count in counts.items()))
    known = [(a, b) for a, b in seconds if b > 0]
    if known:
        print(f"ours {sum(a for a, _ in known):.1f} s, torch.onnx {sum(b for _, b in known):.1f} s")


if __name__ == "__main__":
    main()
