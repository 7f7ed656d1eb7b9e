"""Quantised weights made floats, beside `cp` of as many bytes as are written; and their graphs.

    python benchmarks/dequantize.py [--layers 4] [--rounds 3] [--hidden 2048]

A folder with layers of a 7B model (4096 inputs, 11008 outputs, 4 bits, groups of 128) in the format
of GPTQ, of AWQ and of bitsandbytes, with random weights. Whole processes, with verification (every
weight is computed twice); seconds are medians, ratios those of the same round.

Then a Llama of one layer in the same formats, which takes transformers, becomes a graph that keeps
its weights quantised, and one of floats. For each: bytes of the file beside those of the
checkpoint, seconds and memory of the conversion, and milliseconds and memory of onnxruntime with
one thread, for 1 and for 64 tokens. Nothing is asserted.
"""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from measure import remove, run
from safetensors.numpy import save_file

INPUTS, OUTPUTS, GROUP, BLOCK = 4096, 11008, 128, 64
WORD = (-(1 << 31), (1 << 31) - 1)


def gptq(
    rng: np.random.Generator, outputs: int = OUTPUTS, inputs: int = INPUTS
) -> dict[str, np.ndarray]:
    """Return the tensors of a layer."""
    groups = inputs // GROUP
    return {
        "qweight": rng.integers(*WORD, (inputs // 8, outputs), dtype=np.int32),
        "qzeros": np.full((groups, outputs // 8), 0x77777777, np.int32),  # symmetric, as most are
        "scales": (rng.random((groups, outputs)) / 1000).astype(np.float16),
        "g_idx": (np.arange(inputs) // GROUP).astype(np.int32),
    }


def awq(
    rng: np.random.Generator, outputs: int = OUTPUTS, inputs: int = INPUTS
) -> dict[str, np.ndarray]:
    """Return the tensors of a layer."""
    made = gptq(rng, outputs, inputs)
    del made["g_idx"]
    return made | {"qweight": rng.integers(*WORD, (inputs, outputs // 8), dtype=np.int32)}


def bitsandbytes(
    rng: np.random.Generator, outputs: int = OUTPUTS, inputs: int = INPUTS
) -> dict[str, np.ndarray]:
    """Return the tensors of a layer."""
    count = inputs * outputs
    state = {
        "shape": [outputs, inputs],
        "dtype": "float16",
        "blocksize": BLOCK,
        "quant_type": "nf4",
    }
    text = np.frombuffer(json.dumps(state).encode(), np.uint8).copy()
    return {
        "weight": rng.integers(0, 256, (count // 2, 1), dtype=np.uint8),
        "weight.absmax": rng.random(count // BLOCK).astype(np.float32) / 50,
        "weight.quant_map": np.linspace(-1, 1, 16, dtype=np.float32),
        "weight.quant_state.bitsandbytes__nf4": text,
    }


KINDS = {
    "gptq": (gptq, {"quant_method": "gptq", "bits": 4, "group_size": GROUP}),
    "awq": (awq, {"quant_method": "awq", "bits": 4, "group_size": GROUP, "version": "gemm"}),
    "bitsandbytes": (bitsandbytes, {"quant_method": "bitsandbytes", "load_in_4bit": True}),
}


# Runs a graph, and prints milliseconds of a run with 1 and with 64 tokens, and MB of the process.
RUN = """
import resource, statistics, sys, time
import numpy as np, onnxruntime
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1
options.add_session_config_entry("session.disable_quant_qdq", sys.argv[2])
session = onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
for tokens in (1, 64):
    ids = np.arange(tokens, dtype=np.int64)[None] % 7
    given, took = {"input_ids": ids, "attention_mask": np.ones_like(ids)}, []
    for _ in range(6):
        begin = time.perf_counter()
        session.run(None, given)
        took.append(time.perf_counter() - begin)
    print(statistics.median(took[1:]) * 1e3)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3)
"""


def main() -> None:
    """Print a line for each kind, and lines for its graphs."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--hidden", type=int, default=2048)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        for kind in KINDS if options.layers else ():
            measure_floats(kind, Path(scratch), options.layers, options.rounds)
        for kind in KINDS if options.hidden else ():
            measure_graphs(kind, Path(scratch), options.hidden)


def measure_floats(kind: str, scratch: Path, layers: int, rounds: int) -> None:
    """Print what making floats of layers takes."""
    make, settings = KINDS[kind]
    source, out, copy = (scratch / f"{kind}-{n}" for n in ("in", "out", "copy"))
    source.mkdir()
    rng = np.random.default_rng(1)
    tensors = {
        f"model.layers.{i}.mlp.up_proj.{name}": array
        for i in range(layers)
        for name, array in make(rng).items()
    }
    save_file(tensors, source / "model.safetensors", {"format": "pt"})
    config = {"model_type": "llama", "quantization_config": settings}
    (source / "config.json").write_text(json.dumps(config))
    seconds, ratios, memory = [], [], 0.0
    for _ in range(rounds):
        remove(out)
        command = ["convert", source, "--to", "hf", "--dequantize", "-q", "-o", out]
        took, _, peak = run(command)
        remove(copy)
        alone, *_ = run(["cp", "-r", out, copy])
        seconds.append(took)
        ratios.append(took / alone)
        memory = max(memory, peak)
    size = (out / "model.safetensors").stat().st_size / 1e6
    print(
        f"{kind:14} {size:6.0f} MB of floats  {statistics.median(seconds):6.2f} s  "
        f"{statistics.median(ratios):5.1f} x cp  {memory:6.0f} MB"
    )
    shutil.rmtree(source)


def measure_graphs(kind: str, scratch: Path, hidden: int) -> None:
    """Print what the graphs of a model take, to make and to run."""
    make, settings = KINDS[kind]
    folder = scratch / f"{kind}-model"
    folder.mkdir()
    rng, inner, words = np.random.default_rng(1), hidden * 43 // 16 // GROUP * GROUP, 1000
    tensors = {
        "model.embed_tokens.weight": rng.standard_normal((words, hidden)),
        "lm_head.weight": rng.standard_normal((words, hidden)) / 50,
    }
    norms = ("model.norm", *(f"model.layers.0.{n}_layernorm" for n in ("input", "post_attention")))
    tensors |= {f"{norm}.weight": np.ones(hidden) for norm in norms}
    stored = {name: array.astype(np.float16) for name, array in tensors.items()}
    attention = {f"self_attn.{n}_proj": (hidden, hidden) for n in "qkvo"}
    rest = {"gate": (inner, hidden), "up": (inner, hidden), "down": (hidden, inner)}
    for name, shape in (attention | {f"mlp.{n}_proj": s for n, s in rest.items()}).items():
        for role, array in make(rng, *shape).items():
            stored[f"model.layers.0.{name}.{role}"] = array
    save_file(stored, folder / "model.safetensors", {"format": "pt"})
    config = {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": hidden,
        "intermediate_size": inner, "num_hidden_layers": 1, "num_attention_heads": hidden // 64,
        "vocab_size": words, "dtype": "float16", "quantization_config": settings,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    size = (folder / "model.safetensors").stat().st_size / 1e6
    for form, more in (("quantised", []), ("floats", ["--dequantize"])):
        out = scratch / f"{kind}-{form}.onnx"
        command = ["convert", folder, "--to", "onnx", *more, "--verify", "weights", "-q", "-o", out]
        took, _, peak = run(command)
        print(
            f"{kind:14} {form:9} {out.stat().st_size / 1e6:6.1f} MB of {size:.1f} MB  "
            f"{took:6.1f} s  {peak:6.0f} MB"
        )
        for disabled in "01" if form == "quantised" else "0":
            command = [sys.executable, "-c", RUN, str(out), disabled]
            found = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            one, many, memory = map(float, found.split())
            print(
                f"{'':14} disable_quant_qdq={disabled}: 1 token {one:7.1f} ms, "
                f"64 tokens {many:7.1f} ms, {memory:5.0f} MB"
            )
        out.unlink()
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
