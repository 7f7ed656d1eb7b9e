"""Quantised weights made floats, beside `cp` of as many bytes as are written.

    python benchmarks/dequantize.py [--layers 4] [--rounds 3]

A folder with layers of a 7B model (4096 inputs, 11008 outputs, 4 bits, groups of 128) in the format
of GPTQ, of AWQ and of bitsandbytes, with random weights. Whole processes, with verification (every
weight is computed twice); seconds are medians, ratios those of the same round. Nothing is asserted.
"""

import argparse
import json
import shutil
import statistics
import tempfile
from pathlib import Path

import numpy as np
from measure import remove, run
from safetensors.numpy import save_file

INPUTS, OUTPUTS, GROUP, BLOCK = 4096, 11008, 128, 64
WORD = (-(1 << 31), (1 << 31) - 1)


def gptq(rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Return the tensors of a layer."""
    groups = INPUTS // GROUP
    return {
        "qweight": rng.integers(*WORD, (INPUTS // 8, OUTPUTS), dtype=np.int32),
        "qzeros": rng.integers(*WORD, (groups, OUTPUTS // 8), dtype=np.int32),
        "scales": (rng.random((groups, OUTPUTS)) / 100).astype(np.float16),
        "g_idx": (np.arange(INPUTS) // GROUP).astype(np.int32),
    }


def awq(rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Return the tensors of a layer."""
    made = gptq(rng)
    del made["g_idx"]
    return made | {"qweight": rng.integers(*WORD, (INPUTS, OUTPUTS // 8), dtype=np.int32)}


def bitsandbytes(rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Return the tensors of a layer."""
    count = INPUTS * OUTPUTS
    state = {
        "shape": [OUTPUTS, INPUTS],
        "dtype": "float16",
        "blocksize": BLOCK,
        "quant_type": "nf4",
    }
    text = np.frombuffer(json.dumps(state).encode(), np.uint8).copy()
    return {
        "weight": rng.integers(0, 256, (count // 2, 1), dtype=np.uint8),
        "weight.absmax": rng.random(count // BLOCK).astype(np.float32),
        "weight.quant_map": np.linspace(-1, 1, 16, dtype=np.float32),
        "weight.quant_state.bitsandbytes__nf4": text,
    }


KINDS = {
    "gptq": (gptq, {"quant_method": "gptq", "bits": 4, "group_size": GROUP}),
    "awq": (awq, {"quant_method": "awq", "bits": 4, "group_size": GROUP, "version": "gemm"}),
    "bitsandbytes": (bitsandbytes, {"quant_method": "bitsandbytes", "load_in_4bit": True}),
}


def main() -> None:
    """Print a line for each kind."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        for kind, (make, settings) in KINDS.items():
            source, out, copy = (Path(scratch) / f"{kind}-{n}" for n in ("in", "out", "copy"))
            source.mkdir()
            rng = np.random.default_rng(1)
            tensors = {
                f"model.layers.{i}.mlp.up_proj.{name}": array
                for i in range(options.layers)
                for name, array in make(rng).items()
            }
            save_file(tensors, source / "model.safetensors", {"format": "pt"})
            config = {"model_type": "llama", "quantization_config": settings}
            (source / "config.json").write_text(json.dumps(config))
            seconds, ratios, memory = [], [], 0.0
            for _ in range(options.rounds):
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


if __name__ == "__main__":
    main()
