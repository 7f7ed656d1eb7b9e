"""Images, sounds and numbers in bytes: what they decode to is an input of the graph instead.

A picture is what its decoder yields: levels [height, width, channels]. Where a loop decodes the
images of a batch one by one, they are one input, [batch, height, width, channels]; so all of one
run have one size.
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

# -- images --------------------------------------------------------------------------------------


def _picture(
    op: Session, contents: Value, channels: int, *, dtype: str = "uint8", form: str = "PNG"
) -> Value:
    """Return the levels of a picture, [height, width, channels]; of a GIF each frame's."""
    if contents.rank:
        raise Unsupported("several pictures at once")
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
    """A picture that is an input of the graph: its levels are, instead."""
    # How the decoder goes about it; with a ratio, what is given is the smaller picture.
    del ratio, fancy_upscaling, try_recover_truncated, acceptable_fraction, dct_method
    return _picture(op, contents, channels)


@tf_op("DecodePng")
def decode_png(op: Session, contents: Value, /, *, channels: int = 0, node: Node) -> Value:
    """A picture that is an input of the graph: its levels are, instead."""
    return _picture(op, contents, channels, dtype=node.attribute("dtype", "uint8"))


@tf_op("DecodeBmp")
def decode_bmp(op: Session, contents: Value, /, *, channels: int = 0) -> Value:
    """A picture that is an input of the graph: its levels are, instead."""
    return _picture(op, contents, channels, form="BMP")


@tf_op("DecodeGif")
def decode_gif(op: Session, contents: Value, /) -> Value:
    """Moving images that are an input of the graph: the levels of each are, instead."""
    return _picture(op, contents, 3, form="GIF")


@tf_op("DecodeImage")
def decode_image(
    op: Session, contents: Value, /, *, channels: int = 0, expand_animations: bool = True,
    node: Node,
) -> Value:  # fmt: skip
    """A still picture that is an input of the graph: its levels are, instead."""
    del expand_animations  # of what moves, which would have an axis more
    return _picture(op, contents, channels, dtype=node.attribute("dtype", "uint8"))


# -- sounds ----------------------------------------------------------------------------------------


@tf_op("DecodeWav", outputs=("audio", "sample_rate"))
def decode_wav(
    op: Session, contents: Value, /, *, desired_channels: int = -1, desired_samples: int = -1
) -> list[Value]:
    """A sound that is an input of the graph: its samples (-1 to 1) and their rate are, instead."""
    if contents.rank:
        raise Unsupported("several sounds at once")
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


# -- numbers and texts -----------------------------------------------------------------------------


@tf_op("DecodeRaw")
def decode_raw(op: Session, bytes: Value, /, *, little_endian: bool = True, node: Node) -> Value:
    """Bytes of numbers that are an input of the graph: the numbers are, instead."""
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
    """Strings of base64 that are an input of the graph: what they stand for is, instead."""
    origin = op.decoded.origin(input, "decoding")
    part = Part(DECODED, "", "string", origin.shape)
    return op.decoded.part(origin, BASE64, part, called=f"{origin.name}/{DECODED}")
