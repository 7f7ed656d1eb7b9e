"""Models of KerasHub through our conversion, compared in Keras itself.

    PYTHONPATH=. CONVERT_TENSORFLOW_PYTHON=PYTHON python benchmarks/backbones.py [--names Bert,...]
        [--write FILE.md]

A small model of each backbone, with random weights, is saved as a .keras file, converted with
``--trust keras_hub`` and verified as ``--require cpu`` does: on other inputs and sizes, beside Keras.
An outcome is one of `STATES`; nothing is asserted. PYTHON has TensorFlow, Keras and KerasHub; the
Python that runs this needs onnxruntime, and is best one without Keras: then TensorFlow is imported
once, and not for each question.
"""

import argparse
import inspect
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/support"))

STATES = {
    "ok": "the graph computes what Keras computes",
    "differs": "it computes something else, or that cannot be decided",
    "not supported": "`convert` says in words what it does not do",
    "no model": "it is made of other models, or needs more than sizes",
}
SIZES: dict[str, Any] = {
    "vocabulary_size": 99, "vocab_size": 99, "num_layers": 2, "num_heads": 4, "hidden_dim": 32,
    "num_attention_heads": 4, "num_query_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
    "embedding_dim": 16, "intermediate_dim": 48, "max_sequence_length": 64, "head_size": 8,
    "num_experts": 4, "top_k": 2, "moe_intermediate_dim": 16, "bucket_size": 8,
    "shared_expert_intermediate_dim": 16, "shared_expert_intermediate_size": 16,
    "num_layers_enc": 2, "num_layers_dec": 2, "encoder_num_layers": 2, "decoder_num_layers": 2,
    "encoder_num_heads": 4, "decoder_num_heads": 4, "attention_bias": False, "mlp_bias": False,
    "attention_dropout": 0.0, "rope_layer_enabled_list": [True, True], "rope_theta": 1e4,
    "layer_types": ["full_attention"] * 2, "layer_norm_epsilon": 1e-5,
    "max_position_embeddings": 64, "partial_rotary_factor": 1.0, "hidden_size": 32,
    "gate_lora": 8, "mv_lora": 8, "aaa_lora": 8, "decay_lora": 8, "num_mels": 16,
    "max_encoder_sequence_length": 40, "max_decoder_sequence_length": 20, "image_size": None,
    **{
        f"{side}_{name}": value
        for side in ("encoder", "decoder")
        for name, value in {
            "hidden_dim": 32, "intermediate_dim": 48, "num_attention_heads": 4, "head_dim": 8,
            "num_key_value_heads": 2, "layer_types": ["full_attention"] * 2,
        }.items()
    },
}  # fmt: skip
IMAGE = (32, 32, 3)
PATCHES = {"image_shape": IMAGE, "patch_size": 8, "num_layers": 2, "num_heads": 4,
           "hidden_dim": 32, "mlp_dim": 48, "intermediate_dim": 48}  # fmt: skip
IMAGES: dict[str, dict[str, Any]] = {
    "ViT": PATCHES, "DeiT": PATCHES, "DINOV3": PATCHES,
    "DINOV2": {**PATCHES, "position_embedding_shape": IMAGE},
    "ResNet": {
        "input_conv_filters": [64], "input_conv_kernel_sizes": [7], "block_type": "basic_block",
        "stackwise_num_filters": [64, 64], "stackwise_num_blocks": [1, 1],
        "stackwise_num_strides": [1, 2], "image_shape": IMAGE,
    },
    "DenseNet": {"stackwise_num_repeats": [2, 2], "image_shape": IMAGE, "growth_rate": 8},
    "VGG": {"stackwise_num_repeats": [1, 1], "stackwise_num_filters": [8, 16],
            "image_shape": IMAGE},
    "MiT": {
        "layerwise_depths": [1, 1], "num_layers": 2, "layerwise_num_heads": [1, 2],
        "layerwise_sr_ratios": [2, 1], "max_drop_path_rate": 0.1, "layerwise_patch_sizes": [7, 3],
        "layerwise_strides": [4, 2], "image_shape": IMAGE, "hidden_dims": [16, 32],
    },
    "SwinTransformer": {"image_shape": IMAGE, "embed_dim": 16, "depths": [2, 2],
                        "num_heads": [2, 4], "window_size": 4},
    "Xception": {"stackwise_conv_filters": [[8, 16], [16, 16]],
                 "stackwise_pooling": [True, False], "image_shape": (64, 64, 3)},
    "EfficientNet": {
        "stackwise_width_coefficients": [1.0] * 2, "stackwise_depth_coefficients": [1.0] * 2,
        "stackwise_kernel_sizes": [3, 5], "stackwise_num_repeats": [1, 2],
        "stackwise_input_filters": [32, 16], "stackwise_output_filters": [16, 24],
        "stackwise_expansion_ratios": [1, 6], "stackwise_strides": [1, 2],
        "stackwise_squeeze_and_excite_ratios": [0.25, 0.25],
        "stackwise_block_types": ["v1", "v1"], "stackwise_force_input_filters": [0, 0],
        "stackwise_nores_option": [False, False], "image_shape": IMAGE,
    },
    "HGNetV2": {
        "depths": [1, 1], "embedding_size": 8, "hidden_sizes": [16, 32], "stem_channels": [3, 8, 8],
        "hidden_act": "relu", "use_learnable_affine_block": False,
        "stackwise_stage_filters": [[8, 8, 16, 1, 3, 3], [16, 16, 32, 1, 3, 3]],
        "apply_downsample": [False, True], "use_lightweight_conv_block": [False, True],
        "image_shape": IMAGE,
    },
    "ViTDet": {
        "hidden_size": 32, "num_layers": 2, "intermediate_dim": 48, "num_heads": 4,
        "global_attention_layer_indices": [1], "image_shape": IMAGE, "patch_size": 8,
        "num_output_channels": 16, "window_size": 2,
    },
}  # fmt: skip


def list_names() -> None:
    """Print the names of all backbones: where KerasHub is."""
    import keras_hub

    names = (n.removesuffix("Backbone") for n in dir(keras_hub.models) if n.endswith("Backbone"))
    print("\n".join(sorted(n for n in names if n not in ("", "FeaturePyramid"))))


def make(name: str, path: str) -> None:
    """Save a small model of a backbone: where KerasHub is."""
    import keras
    import keras_hub
    import numpy as np

    keras.utils.set_random_seed(1)
    kind = getattr(keras_hub.models, f"{name}Backbone")
    taken = inspect.signature(kind.__init__).parameters
    model = kind(**(IMAGES.get(name) or {n: v for n, v in SIZES.items() if n in taken}))
    random = np.random.default_rng(0)
    for weight in model.weights:  # biases and scales begin as zeros and ones
        if weight.ndim <= 1 and "float" in weight.dtype and "seed" not in weight.path:
            weight.assign(weight + random.uniform(0.01, 0.3, weight.shape))
    model.save(path)


def measure(python: str, name: str, folder: Path) -> tuple[str, str]:
    """Return the outcome of a model, and what is to be said of it."""
    import converter
    from converter.child.trust import Trusted
    from converter.options import Options
    from formats.errors import ConvertError, VerificationError

    path = folder / f"{name}.keras"
    command = [python, str(Path(__file__).resolve()), "--make", name, str(path)]
    done = subprocess.run(command, capture_output=True, text=True)
    if not path.exists():
        return "no model", (done.stderr.strip().splitlines() or ["it ends"])[-1]
    options = Options(trust=(Trusted("keras_hub", None),), require="cpu")
    try:
        made = converter.convert(path, to="onnx", out=folder / f"{name}.onnx", options=options)
    except VerificationError as e:
        return "differs", e.found
    except ConvertError as e:
        return "not supported", e.found.partition(": ")[2] or e.found
    assert made.verification is not None
    (report,) = made.verification.graphs.values()
    return "ok", f"{report.max_rel:.1e}"


def main() -> None:
    """Print an outcome for each backbone, and the counts."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--names", default="", help="of backbones, with commas")
    parser.add_argument("--write", type=Path, help="document to write")
    parser.add_argument("--make", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--list", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.make or options.list:
        make(*options.make) if options.make else list_names()
        return
    from warm_python import warm

    own = os.environ.get("CONVERT_TENSORFLOW_PYTHON", sys.executable)
    rows: dict[str, tuple[str, str]] = {}
    with (
        tempfile.TemporaryDirectory() as name,
        warm(own, Path(name), "tensorflow", "keras") as python,
    ):
        os.environ["CONVERT_TENSORFLOW_PYTHON"] = str(python)
        command = [str(python), str(Path(__file__).resolve()), "--list"]
        every = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
        for kind in [n for n in options.names.split(",") if n] or every:
            rows[kind] = measure(str(python), kind, Path(name))
            print(f"{rows[kind][0]:14} {kind:24} {rows[kind][1][:150]}", flush=True)
    counts = Counter(state for state, _ in rows.values())
    lines = [f"- {counts[state]} {state}: {meaning}" for state, meaning in STATES.items()]
    print("\n".join(lines))
    if options.write:
        write_document(rows, lines, own, options.write)


def write_document(
    rows: dict[str, tuple[str, str]], counts: list[str], python: str, path: Path
) -> None:
    """Write the outcomes as a table."""
    code = "import keras, keras_hub; print(keras.__version__, keras_hub.__version__)"
    said = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    keras, hub = said.stdout.split()[-2:]
    head = [
        "# Backbones of KerasHub", "",
        "`python benchmarks/backbones.py`: small models with random weights, verified beside Keras. The",
        "largest difference is a fraction of the largest output.", "",
        f"- KerasHub {hub}, Keras {keras}, TensorFlow's backend", *counts, "",
        "| backbone | outcome | largest difference, or why |", "|---|---|---|",
    ]  # fmt: skip
    order = sorted(rows.items(), key=lambda row: ([*STATES].index(row[1][0]), row[0]))
    table = [f"| {n} | {state} | {words.replace('|', ' ')[:200]} |" for n, (state, words) in order]
    path.write_text("\n".join([*head, *table]) + "\n")


if __name__ == "__main__":
    main()
