"""Decoders of images, audio, numbers and base64: the decoded value becomes an input instead.

An image becomes the output of its decoder: pixels [height, width, channels]. Where a loop decodes
the images of a batch one by one, they become one input, [batch, height, width, channels], so that
all images of a run have the same size.
Spec: https://github.com/tensorflow/tensorflow/tree/v2.21.0/tensorflow/core/api_def/base_api
"""

from converter.lower.encoded import (
    BASE64,
    DECODED,
    LEVELS,
    NUMBERS,
    PICTURE,
    RATE,
    RAW,
    SAMPLES,
    SOUND,
    Part,
)  # fmt: skip
from converter.lower.graph import Dim
from converter.lower.tf import extents
from converter.lower.tf.graphdef import Node
from converter.lower.tf.session import Session
from converter.lower.tf.table import Unsupported, tf_op
from converter.lower.values import Value

# -- images ----------------------------------------------------------------------------------------


def _picture(
    op: Session, contents: Value, channels: int, *, dtype: str = "uint8", form: str = "PNG"
) -> Value:
    """Return the pixels of an image, [height, width, channels]; of a GIF [frames, ...]."""
    if contents.rank:
        raise Unsupported("several images at once")
    origin = op.decoded.origin(contents, "decoding")
    name = origin.name
    sides: list[Dim] = [f"{name}/height", f"{name}/width", channels or f"{name}/channels"]
    frames = [f"{name}/frames"] if form == "GIF" else []
    part = Part(LEVELS, "", dtype, (*origin.shape, *frames, *sides))
    settings: dict[str, str | int | bool] = {"form": form}
    return op.decoded.part(origin, PICTURE, part, settings=settings, called=f"{name}/{LEVELS}")


@tf_op("DecodeJpeg")
def decode_jpeg(
    op: Session, contents: Value, /, *, channels: int = 0, ratio: int = 1,
    fancy_upscaling: bool = True, try_recover_truncated: bool = False,
    acceptable_fraction: float = 1.0, dct_method: str = "",
) -> Value:  # fmt: skip
    """DecodeJpeg of a graph input: its pixels become the input."""
    # Settings of the decoder; with a ratio, the input is the downscaled image.
    del ratio, fancy_upscaling, try_recover_truncated, acceptable_fraction, dct_method
    return _picture(op, contents, channels)


@tf_op("DecodePng")
def decode_png(op: Session, contents: Value, /, *, channels: int = 0, node: Node) -> Value:
    """DecodePng of a graph input: its pixels become the input."""
    return _picture(op, contents, channels, dtype=node.attribute("dtype", "uint8"))


@tf_op("DecodeBmp")
def decode_bmp(op: Session, contents: Value, /, *, channels: int = 0) -> Value:
    """DecodeBmp of a graph input: its pixels become the input."""
    return _picture(op, contents, channels, form="BMP")


@tf_op("DecodeGif")
def decode_gif(op: Session, contents: Value, /) -> Value:
    """DecodeGif of a graph input: the pixels of its frames become the input."""
    return _picture(op, contents, 3, form="GIF")


@tf_op("DecodeImage")
def decode_image(
    op: Session, contents: Value, /, *, channels: int = 0, expand_animations: bool = True,
    node: Node,
) -> Value:  # fmt: skip
    """DecodeImage of a graph input, a still image: its pixels become the input."""
    del expand_animations  # for animations, which have one more axis
    return _picture(op, contents, channels, dtype=node.attribute("dtype", "uint8"))


# -- audio -----------------------------------------------------------------------------------------


@tf_op("DecodeWav", outputs=("audio", "sample_rate"))
def decode_wav(
    op: Session, contents: Value, /, *, desired_channels: int = -1, desired_samples: int = -1
) -> list[Value]:
    """DecodeWav of a graph input: its samples (-1 to 1) and their rate become the inputs."""
    if contents.rank:
        raise Unsupported("several audio files at once")
    origin = op.decoded.origin(contents, "decoding")
    name = origin.name
    samples: Dim = desired_samples if desired_samples >= 0 else f"{name}/samples"
    channels: Dim = desired_channels if desired_channels >= 0 else f"{name}/channels"
    part = Part(SAMPLES, "", "float32", (*origin.shape, samples, channels))
    rate = Part(RATE, "", "int32", origin.shape)
    return [
        op.decoded.part(origin, SOUND, part, called=f"{name}/{SAMPLES}"),
        op.decoded.part(origin, SOUND, rate, called=f"{name}/{RATE}"),
    ]


# -- numbers and strings ---------------------------------------------------------------------------


@tf_op("DecodeRaw")
def decode_raw(op: Session, bytes: Value, /, *, little_endian: bool = True, node: Node) -> Value:
    """DecodeRaw of a graph input: its numbers become the input."""
    origin = op.decoded.origin(bytes, "decoding")
    dtype = node.attribute("out_type")
    part = Part(NUMBERS, "", dtype, (*origin.shape, f"{origin.name}/length"))
    found = op.decoded.part(
        origin, RAW, part, settings={"little_endian": little_endian},
        called=f"{origin.name}/{NUMBERS}",
    )  # fmt: skip
    if origin.index is None and bytes.shape != origin.shape:
        sides = [*extents.of_all(op, bytes), extents.of(op, found, found.rank - 1)]
        return extents.reshape_to(op, found, sides)
    return found


@tf_op("DecodeBase64")
def decode_base64(op: Session, input: Value, /) -> Value:
    """DecodeBase64 of a graph input: the decoded strings become the input."""
    origin = op.decoded.origin(input, "decoding")
    part = Part(DECODED, "", "string", origin.shape)
    return op.decoded.part(origin, BASE64, part, called=f"{origin.name}/{DECODED}")
