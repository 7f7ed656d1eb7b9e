"""Small models of KerasHub with random weights: ``make_keras_hub.py FOLDER``.

A text encoder as the folder of a preset, a language model, and a classifier of images with the
preprocessor that it is saved with. What Keras makes of random inputs is beside each.
"""

import sys
from pathlib import Path

import keras
import keras_hub
import make_models
import numpy as np

TEXT = {"vocabulary_size": 30, "num_layers": 2, "num_heads": 2, "hidden_dim": 8}
TEXT |= {"intermediate_dim": 12, "max_sequence_length": 20}
IMAGES = {
    "input_conv_filters": [64], "input_conv_kernel_sizes": [3], "stackwise_num_filters": [64],
    "stackwise_num_blocks": [1], "stackwise_num_strides": [1], "block_type": "basic_block",
    "image_shape": (16, 16, 3),
}  # fmt: skip


def main(folder: Path) -> None:
    models, random = keras_hub.models, np.random.default_rng(0)
    tokens = random.integers(1, 30, (3, 7)).astype("int32")
    mask = (np.arange(7) < [[7], [4], [1]]).astype("int32")
    text = {"token_ids": tokens, "padding_mask": mask}

    encoder = models.BertBackbone(**TEXT)
    make_models.randomise(encoder, random)
    encoder.save_to_preset(str(folder / "preset"))
    given = text | {"segment_ids": tokens % 2}
    np.savez(folder / "preset.npz", **given, **encoder(given))

    language = models.GPT2CausalLM(backbone=models.GPT2Backbone(**TEXT), preprocessor=None)
    make_models.randomise(language, random)
    language.save(folder / "causal.keras")
    np.savez(folder / "causal.npz", **text, output=language(text))

    converter = keras_hub.layers.ResNetImageConverter(image_size=(16, 16), scale=1 / 255)
    images = models.ResNetImageClassifier(
        backbone=models.ResNetBackbone(**IMAGES), num_classes=4,
        preprocessor=models.ResNetImageClassifierPreprocessor(image_converter=converter),
    )  # fmt: skip
    make_models.randomise(images, random)
    images.save(folder / "images.keras")
    x = random.uniform(size=(3, 16, 16, 3)).astype("float32")
    np.savez(folder / "images.npz", input=x, output=images(x))


if __name__ == "__main__":
    keras.utils.set_random_seed(0)
    main(Path(sys.argv[1]))
