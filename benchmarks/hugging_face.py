"""Architectures of Hugging Face's transformers through our conversion, beside torch.onnx.

    PYTHONPATH=. python benchmarks/hugging_face.py [--names bert,gpt2] [--tasks CAUSAL_LM,...]
        [--part 0/4] [--peer 10] [--record FILE.jsonl] [--write FILE.md]

For each type of model, one of few small layers and random weights is saved, loaded as ``--to onnx``
does, exported by torch, converted by `convert` and run by onnxruntime beside the model itself, for
two batch and sequence sizes. An outcome is one of `STATES`. Seconds (of CPU) and megabytes (the
largest resident size) are those of the whole process that converts the exported program; with
``--peer N``, every Nth exported program is converted by torch.onnx's dynamo exporter, too.
``--record`` appends the outcomes to a file, whose models are not measured again; ``--write`` makes
a document of all of them. Nothing is asserted. Needs torch, transformers and onnxruntime; the peer
needs onnxscript.
"""

import argparse
import contextlib
import importlib.util
import io
import json
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median

import numpy as np
import onnxruntime
import torch
import transformers
from transformers.models.auto import modeling_auto

HERE = Path(__file__).resolve().parent
STATES = {
    "ok": "the graph computes what the model computes, at both sizes",
    "fixed": "the same, at the sizes of the export: torch.export made an axis static",
    "wrong": "the graph computes something else",
    "error": "the graph does not run",
    "not supported": "`convert` names what it does not lower, or refuses the model in words",
    "not exported": "torch.export fails",
    "not run": "the model does not take the inputs that `convert` declares for it",
    "no model": "transformers builds no small model of this type",
}
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
    "n_positions": 64, "image_size": 64, "patch_size": 8, "num_experts": 4, "num_local_experts": 4,
    "n_routed_experts": 4, "moe_num_experts": 4, "num_experts_per_tok": 2, "moe_topk": 2,
    "top_k_experts": 2, "moe_k": 2, "n_group": 1, "topk_group": 1,
    "moe_intermediate_size": 16, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    "projection_dim": 32, "num_mel_bins": 16, "max_source_positions": 32, "rotary_dim": 4,
    "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 8, "q_lora_rank": 16,
    "kv_lora_rank": 16, "index_head_dim": 8, "index_n_heads": 4,
    "pooler_hidden_size": 32, "cross_hidden_size": 32,
    "projection_size": 32, "emb_dim": 32, "num_group": 1, "num_experts_per_token": 2,
    "vocab_size_per_layer_input": 99, "hidden_size_per_layer_input": 8,
    "mamba_n_heads": 8, "mamba_d_head": 8, "mamba_d_state": 16, "mamba_num_heads": 8,
    "mamba_head_dim": 8, "num_kv_shared_layers": 0, "num_queries": 8,
}  # fmt: skip
RESNET = {
    "model_type": "resnet", "embedding_size": 8, "hidden_sizes": [8, 8, 16, 16],
    "depths": [1, 1, 1, 1], "out_features": ["stage4"],
}  # fmt: skip
OF_RESNET = {"use_timm_backbone": False, "backbone": None, "backbone_config": RESNET}
SWIN = {"window_size": 4, "image_size": 128, "patch_size": 4}
ROPE = {"rope_type": "default", "rope_theta": 10000.0}
HYBRID = {
    "num_hidden_layers": 4, "layers_block_type": ["linear_attention", "hybrid"] * 2,
    "attention_hidden_size": 64, "attention_head_dim": 16,
}  # fmt: skip
# What one type of model needs besides: sizes that depend on each other.
NEEDED: dict[str, dict[str, object]] = {
    "mamba2": {"num_heads": 8}, "mobilevitv2": {"patch_size": 2},
    "gpt_neo": {
        "attention_types": [[["global", "local"], 1]], "attention_layers": ["global", "local"],
    },
    "levit": {"patch_size": 16}, "hiera": {"embed_dim": 24}, "donut-swin": SWIN, "swin": SWIN,
    "efficientnet": {"width_coefficient": 0.5, "depth_coefficient": 0.5, "hidden_dim": 640},
    "perceiver": {
        "d_latents": 32, "num_latents": 16, "d_model": 32, "num_self_attends_per_block": 2,
        "num_self_attention_heads": 4, "num_cross_attention_heads": 4,
    },
    "detr": OF_RESNET, "conditional_detr": OF_RESNET, "table-transformer": OF_RESNET,
    "dab-detr": OF_RESNET,
    "deformable_detr": {
        **OF_RESNET, "backbone_config": {**RESNET, "out_features": ["stage2", "stage3", "stage4"]},
    },
    "deepseek_v2": {"num_experts_per_tok": 2}, "zaya": {"num_experts_per_tok": 1},
    "dots1": {"n_routed_experts": 4, "num_experts_per_tok": 2, "n_shared_experts": 1},
    "falcon_h1": {"mamba_d_ssm": 64},
    "zamba": HYBRID | {"mamba_dt_rank": 2},
    "zamba2": HYBRID | {"mamba_headdim": 8, "kv_channels": 16, "hybrid_layer_ids": [1, 3]},
    "xlstm": {"embedding_dim": 32, "num_blocks": 2}, "lilt": {"hidden_size": 48},
    "mistral4": {"head_dim": 16, "qk_head_dim": 16},
    "bailing_hybrid": {"num_expert_group": 1, "linear_head_dim": 8, "linear_num_heads": 4},
    "longcat_flash": {
        "ffn_hidden_size": 48, "expert_ffn_hidden_size": 16, "zero_expert_num": 2,
        "qk_head_dim": 16,
    },
    "cohere_compass_text": {
        "rope_parameters": {"full_attention": ROPE, "sliding_attention": ROPE},
    },
    "dbrx": {
        "attn_config": {"rope_theta": 10000.0, "kv_n_heads": 2, "clip_qkv": 8.0},
        "ffn_config": {
            "ffn_hidden_size": 48, "hidden_size": 32, "moe_num_experts": 4, "moe_top_k": 2,
        },
    },
    "lfm2_moe": {"layer_types": ["conv", "full_attention"]},
    "nemotron": {"num_key_value_heads": 2}, "esmc": {"num_key_value_heads": 4},
    "reformer": {"is_decoder": True, "axial_pos_embds": False}, "xlnet": {"d_head": 8},
    "xmod": {"default_language": "en_XX"}, "esm": {"vocab_size": 99},
    "layoutlmv3": {"coordinate_size": 6, "shape_size": 4, "input_size": 64},
    "luke": {"entity_vocab_size": 50, "entity_emb_size": 32}, "t5": {"decoder_start_token_id": 0},
    "voxtral": {"audio_token_id": 5},
}  # fmt: skip
TOKENS = ("pad_token_id", "bos_token_id", "eos_token_id")
DERIVED = ("per_layer_config", "out_features", "out_indices", "stage_names")  # of other settings
LARGEST = 40_000_000  # parameters
SECONDS = 300  # of CPU, for one model
SIZES = (
    {"batch": 2, "sequence": 12, "decoder_sequence": 10, "samples": 4800, "frames": 160},
    {"batch": 3, "sequence": 5, "decoder_sequence": 4, "samples": 6400, "frames": 96},
)
RUN = "import json, sys; from measure import run; print(json.dumps(run(sys.argv[1:])))"
PEER = """
import sys, torch
program = torch.export.load(sys.argv[1])
torch.onnx.export(program, (), sys.argv[2], dynamo=True, verbose=False, external_data=False)
"""


def load_child(name: str):
    """Return a module of the child that exports."""
    spec = importlib.util.spec_from_file_location(
        name, HERE.parent / "converter" / "capture" / f"{name}.py"
    )
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


exporter, pretrained = load_child("torch_exporter"), load_child("pretrained")
model_inputs, generation = load_child("model_inputs"), load_child("generation")


def shrink(settings: dict) -> dict:
    """Return the settings of a small configuration, with those inside of it made small, too."""
    has_stages = "depths" in settings  # whose number stays
    small = {n: v for n, v in settings.items() if has_stages or n not in DERIVED}
    layers = settings.get("num_hidden_layers")
    for name, value in small.items():
        if isinstance(value, list) and len(value) == layers:  # one for each layer
            other = next((v for v in value if v != value[0]), value[-1])
            small[name] = [value[0], other]
        elif isinstance(value, dict) and "model_type" in value:
            small[name] = shrink(value)
        elif name in SMALL and (
            type(value) is int or (value is None and name in ("head_dim", *TOKENS))
        ):
            small[name] = SMALL[name]
    if "kv_lora_rank" in small and "num_key_value_heads" in small:  # latent attention has no groups
        small["num_key_value_heads"] = SMALL["num_attention_heads"]
    return small


def save_model(kind: str, class_name: str, folder: Path) -> None:
    """Save a small model with random weights."""
    model_class = getattr(transformers, class_name)
    config_class = model_class.config_class or type(transformers.CONFIG_MAPPING[kind]())
    settings = shrink(config_class().to_dict()) | NEEDED.get(kind, {})
    settings.pop("model_type", None)
    config = config_class(**settings)
    torch.manual_seed(0)
    with contextlib.suppress(TypeError), torch.device("meta"):
        size = sum(p.numel() for p in model_class(config).parameters())
        if size > LARGEST:
            raise ValueError(f"{size} parameters in spite of a small configuration")
    model = model_class(config).eval()
    for parameter in model.parameters():  # signals stay alive
        if parameter.ndim < 2:
            torch.nn.init.normal_(parameter, 0.5, 0.2)
        elif parameter.ndim == 4:
            torch.nn.init.kaiming_normal_(parameter)
    model.save_pretrained(folder)


def draw(specs, sizes: dict[str, int]) -> dict[str, torch.Tensor]:
    """Return random inputs."""
    given = {}
    for spec in specs:
        known = {name: size for name, (size, _) in spec.get("sizes", {}).items()} | sizes
        shape = [known.get(n, 12) if isinstance(n, str) else n for n in spec["shape"]]
        if spec["dtype"] == "float32":
            given[spec["name"]] = torch.randn(shape)
        elif "mask" in spec["name"]:
            given[spec["name"]] = torch.ones(shape, dtype=torch.int64)
        elif spec["name"] == "spatial_shapes":
            given[spec["name"]] = torch.tensor([[4, 6]] * shape[0])
        else:
            high = 2 if "type" in spec["name"] else 90
            given[spec["name"]] = torch.randint(3 if high > 2 else 0, high, shape)
            if spec["name"] == "bbox":  # left and top, right and bottom
                given["bbox"] = given["bbox"].sort(-1).values
            if spec["name"] == "input_ids":
                given["input_ids"][..., -1] = SMALL["eos_token_id"]
    return given


def measure(kind: str, class_name: str, home: Path, *, peer: bool) -> dict[str, object]:
    """Return the outcome of one type of model: its state, words, and what was measured."""
    state = "no model"
    try:
        save_model(kind, class_name, home / "model")
        state = "not run"
        model, _ = pretrained.load(home / "model", "cpu", {})
        inputs, notes = model_inputs.declare_inputs(model, model.config, home / "model")
        (part,) = generation.split_model(torch, model.eval(), inputs, None)
        module, specs = part.module, part.inputs
        given = draw(specs, {n: SIZES[0][n] for n in ("batch", "decoder_sequence")})
        with torch.no_grad():
            module(**given)
            state = "not exported"
            axes = {s["name"]: {i: n for i, n in enumerate(s["shape"]) if isinstance(n, str)}
                    for s in specs}  # fmt: skip
            loaded = argparse.Namespace(module=module, program=None)
            source = exporter.Source(loaded, [*given], (), given, axes)
            torch.export.save(exporter.export_module(torch, source), home / "program.pt2")
    except model_inputs.UnservedError as e:
        return {"state": "not supported", "words": str(e)}
    except Exception as e:  # noqa: BLE001 - whatever transformers and torch raise
        words = " ".join(f"{type(e).__name__}: {e}".split())
        return {"state": state, "words": words[:200]}
    source, target = home / "program.pt2", home / "a.onnx"
    ours = [sys.executable, "-m", "converter", source, "--to", "onnx", "--verify", "none", "-q"]
    try:
        seconds, megabytes = run([*ours, "-o", target])
    except subprocess.CalledProcessError as e:
        refused = "not supported" in e.stderr
        said = e.stderr.rpartition(" failed: ")[2]
        lines = [line.strip() for line in said.splitlines() if line.strip()]
        words = next((line for line in lines if "not supported" in line), lines[-1])
        return {"state": "not supported" if refused else "error", "words": words[:200]}
    state, words = compare(module, specs, target)
    found = {"state": state, "words": words, "seconds": seconds, "megabytes": megabytes}
    found |= {"note": model_inputs.TEXT_ALONE} if notes else {}
    if peer and state in ("ok", "fixed"):
        try:
            theirs = run([sys.executable, "-c", PEER, source, home / "b.onnx"])
        except subprocess.CalledProcessError:  # the peer's failure is a missing figure
            theirs = (None, None)
        found |= dict(zip(("peer_seconds", "peer_megabytes"), theirs, strict=True))
    return found


def run(command: list[object]) -> tuple[float, float]:
    """Return seconds of CPU and megabytes of a process.

    A small process starts it: the kernel counts what a process has before it becomes another.

    Raises:
        CalledProcessError: It fails.
    """
    small = [sys.executable, "-c", RUN, *map(str, command)]
    path = {**os.environ, "PYTHONPATH": f"{HERE}{os.pathsep}{HERE.parent}"}
    done = subprocess.run(small, env=path, capture_output=True, text=True, check=True)
    _, seconds, megabytes = json.loads(done.stdout)
    return seconds, megabytes


def compare(module, specs, graph: Path) -> tuple[str, str]:
    """Return whether onnxruntime computes with a graph what a module computes, and words."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    session = onnxruntime.InferenceSession(graph, options)
    shapes = {i.name: i.shape for i in session.get_inputs()}
    fixed = {
        axis: n
        for spec in specs
        for axis, n in zip(spec["shape"], shapes.get(spec["name"], ()), strict=False)
        if isinstance(axis, str) and isinstance(n, int)
    }
    count = 0
    for sizes in SIZES:
        given = draw(specs, sizes | fixed)
        with torch.no_grad():
            expected = [v.numpy() for v in module(**given).values()]
        try:
            found = session.run(None, {n: given[n].numpy() for n in shapes})
        except Exception as e:  # noqa: BLE001 - whatever onnxruntime raises
            return "error", " ".join(str(e).split())[:200]
        count = len(found)
        for one, other in zip(found, expected, strict=True):
            scale = max(np.abs(other[np.isfinite(other)]).max(initial=0), 1e-3)
            if one.shape != other.shape:
                return "wrong", f"shape {one.shape}, not {other.shape}"
            if not np.allclose(one, other, rtol=1e-3, atol=1e-3 * scale, equal_nan=True):
                return "wrong", f"by {np.abs(one - other).max() / scale:.1e}"
    if fixed:
        return "fixed", ", ".join(f"{name} = {n}" for name, n in fixed.items())
    return "ok", f"{len(shapes)} inputs, {count} outputs"


def send_outcome(pipe: Connection, kind: str, class_name: str, *, peer: bool) -> None:
    """Measure one type of model and send the outcome: what a process of its own does."""
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(io.StringIO()):
        pipe.send(measure(kind, class_name, Path(folder), peer=peer))


def load_exporter() -> None:
    """Export a small program: processes that are forked after it have torch's modules."""
    batch = torch.export.Dim("batch")
    torch.export.export(torch.nn.Linear(2, 2), (torch.ones(3, 2),), dynamic_shapes=[{0: batch}])


def measure_apart(kind: str, class_name: str, *, peer: bool) -> dict[str, object]:
    """Return the outcome of one type of model, which a process of its own measures."""
    fork = multiprocessing.get_context("fork")
    ours, theirs = fork.Pipe(duplex=False)
    child = fork.Process(
        target=send_outcome, args=(theirs, kind, class_name), kwargs={"peer": peer}
    )
    child.start()
    theirs.close()
    try:
        return ours.recv()
    except EOFError:
        child.join()
        if child.exitcode == -signal.SIGXCPU:
            return {"state": "not exported", "words": f"more than {SECONDS} seconds"}
        return {"state": "error", "words": "the process ended"}
    finally:
        child.kill()
        child.join()


def list_architectures(tasks: list[str], names: set[str]) -> dict[tuple[str, str], str]:
    """Return the tasks of all types of models with their classes."""
    rows: dict[tuple[str, str], str] = {}
    for task in tasks:
        table = getattr(modeling_auto, f"MODEL_FOR_{task}_MAPPING_NAMES", {})
        for kind, classes in table.items():
            class_name = classes if isinstance(classes, str) else classes[0]
            if not names or kind in names:
                rows.setdefault((kind, class_name), task)
    return rows


def summarize(rows: list[dict]) -> list[str]:
    """Return lines with the counts, and the medians of what was measured."""
    counts = Counter(row["state"] for row in rows)
    lines = [f"{counts[state]:5} {state}: {words}" for state, words in STATES.items()]
    done = [row for row in rows if "seconds" in row]
    if done:
        seconds, size = (median(row[n] for row in done) for n in ("seconds", "megabytes"))
        lines.append(f"convert: median {seconds:.2f} s of CPU, {size:.0f} MB, of {len(done)}")
    both = [row for row in done if row.get("peer_seconds")]
    if both:
        columns = ("seconds", "peer_seconds", "megabytes", "peer_megabytes")
        a, b, c, d = (median(row[n] for row in both) for n in columns)
        lines.append(f"of {len(both)} by both: convert {a:.2f} s and {c:.0f} MB, "
                     f"torch.onnx {b:.2f} s and {d:.0f} MB")  # fmt: skip
    failed = sum("peer_seconds" in row and not row["peer_seconds"] for row in rows)
    if both or failed:
        lines.append(f"torch.onnx does not convert {failed} of {len(both) + failed}")
    return lines


def write_document(rows: list[dict], path: Path) -> None:
    """Write the outcomes of all types of models as a table."""
    head = [
        "# Architectures of transformers", "",
        "`python benchmarks/hugging_face.py`: small models with random weights. Where a lowering of",
        "`convert` fails, it has torch.onnx convert the program: rows of more than ten seconds.", "",
        f"- transformers {transformers.__version__}", f"- torch {torch.__version__}",
        f"- onnxruntime {onnxruntime.__version__}",
        f"- {len(rows)} of {len(list_architectures([*TASKS], set()))} types of models measured",
    ]  # fmt: skip
    table = ["", "| type | class | outcome | s | MB | torch.onnx s | MB | |",
             "|---|---|---|---:|---:|---:|---:|---|"]  # fmt: skip
    for row in sorted(rows, key=lambda row: ([*STATES].index(row["state"]), row["kind"])):
        names = ("seconds", "megabytes", "peer_seconds", "peer_megabytes")
        found = [row.get(name) for name in names]
        figures = [f"{v:.2f}" if isinstance(v, float) else "" if v is None else v for v in found]
        words = row["words"].replace("|", "\\|") if row["state"] != "ok" else row.get("note", "")
        cells = (row["kind"], f"`{row['class']}`", row["state"], *figures, words)
        table.append(f"| {' | '.join(map(str, cells))} |")
    lines = [*head, *(f"- {line.strip()}" for line in summarize(rows)), *table]
    path.write_text("\n".join(lines) + "\n")


def main() -> None:
    """Print an outcome for each type of model, and the counts."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--names", default="", help="of types of models, with commas")
    parser.add_argument("--tasks", default=",".join(TASKS))
    parser.add_argument("--part", default="0/1", help="I/N: every Nth from the Ith on")
    parser.add_argument("--peer", type=int, default=0, help="N: every Nth by torch.onnx, too")
    parser.add_argument("--record", type=Path, help="JSON lines, one for each type of model")
    parser.add_argument("--write", type=Path, help="a document of all outcomes")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    load_exporter()
    rows = []
    if asked.record is not None and asked.record.exists():
        rows = [json.loads(line) for line in asked.record.read_text().splitlines()]
    known = {(row["kind"], row["class"]) for row in rows}
    at, parts = map(int, asked.part.split("/"))
    names = set(filter(None, asked.names.split(",")))
    wanted = [*list_architectures(asked.tasks.split(","), names)][at::parts]
    for number, (kind, class_name) in enumerate(wanted):
        if (kind, class_name) in known:
            continue
        peer = bool(asked.peer) and number % asked.peer == 0
        row = {"kind": kind, "class": class_name, **measure_apart(kind, class_name, peer=peer)}
        rows.append(row)
        figures = " ".join(f"{row[n]:7.2f}" for n in ("seconds", "peer_seconds") if row.get(n))
        print(f"{row['state']:14}{class_name:44}{figures}  {row['words']}", flush=True)
        if asked.record is not None:
            with asked.record.open("a") as file:
                file.write(json.dumps(row) + "\n")
    print(*summarize(rows), sep="\n")
    if asked.write is not None:
        write_document(rows, asked.write)


if __name__ == "__main__":
    main()
