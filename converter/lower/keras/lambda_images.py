"""Functions on images, as the code of a Lambda calls them: keras.backend's, and TensorFlow 1's.

TensorFlow 1 resizes as if pixels were points at their corners, TensorFlow 2 as if they were squares
around their centres. What tells which it was is the Keras that wrote the model: ``tensorflow``.
Spec: https://github.com/tensorflow/tensorflow/blob/v1.15.0/tensorflow/python/ops/image_ops_impl.py
"""

from typing import Any

from converter.lower.builder import Builder
from converter.lower.keras.lambda_tensors import function
from converter.lower.keras.operations.operands import known_size, tensor
from converter.lower.keras.table import BACKEND_FUNCTIONS, TF_CALLED, Unsupported, operation
from converter.lower.keras.tensorflow_ops.images import batched, resize_by
from converter.lower.keras.tensorflow_ops.operands import vector
from converter.lower.ops.pad import reverse_axes
from converter.lower.table import Variant
from converter.lower.values import Value

METHODS = ("bilinear", "nearest", "bicubic", "area")  # of TensorFlow 1, in order of its numbers


def _resize(
    op: Builder, images: Any, size: Any, method: Any, *, align: bool, is_centred: bool | None
) -> Value:
    """Return images in another size; ``is_centred`` is None where nothing tells."""
    kind = METHODS[method] if isinstance(method, int) and 0 <= method < 4 else str(method)
    if is_centred is None:
        new = op.array(vector(op, size))
        old = batched(op, images)[0].shape[1:3]
        repeats = new is not None and not any(
            not isinstance(n, int) or m % n for n, m in zip(old, new.tolist(), strict=True)
        )
        if kind != "nearest" or align or not repeats:
            raise Unsupported("resizing of images, which TensorFlow 1 and 2 do differently")
        is_centred = True  # repeated pixels are the same in both
    if not is_centred:
        return resize_by(op, kind, images, size, align_corners=align)
    if align:
        raise Unsupported("resizing with align_corners")
    return function(op, "image.resize", images, size, kind)


def _is_centred(tensorflow: int | None) -> bool | None:
    return None if tensorflow is None else tensorflow >= 2


@operation(TF_CALLED, "image.resize", "image.resize_images")
def resize(
    op: Builder, images: Any, size: Any = None, method: Any = "bilinear",
    align_corners: Any = False, *rest: Any, preserve_aspect_ratio: bool = False,
    antialias: bool = False, tensorflow: int | None = None, new_height: Any = None,
    new_width: Any = None,
) -> Value:  # fmt: skip
    """Images resized; TensorFlow 0 had separate arguments for height and width."""
    if new_height is not None:
        size = (new_height, new_width)
    elif isinstance(size, int):  # (images, height, width, method, align_corners)
        size = (size, method)
        method, align_corners = (align_corners or 0), bool(rest and rest[0])
        rest = ()
    elif tensorflow == 2 and align_corners:
        raise Unsupported("preserve_aspect_ratio")  # an argument at this position in TensorFlow 2
    if rest or preserve_aspect_ratio or antialias:
        raise Unsupported("resizing with preserve_aspect_ratio or antialias")
    return _resize(
        op, images, size, method, align=bool(align_corners), is_centred=_is_centred(tensorflow)
    )


@operation(
    TF_CALLED,
    Variant(
        "image.resize_bilinear",
        "Images in another size, bilinear, as TensorFlow 1 does it.",
        method="bilinear",
    ),
    Variant(
        "image.resize_nearest_neighbor",
        "Images in another size, nearest, as TensorFlow 1 does it.",
        method="nearest",
    ),
    Variant(
        "image.resize_bicubic",
        "Images in another size, bicubic, as TensorFlow 1 does it.",
        method="bicubic",
    ),
    Variant(
        "image.resize_area", "Images in another size, area, as TensorFlow 1 does it.", method="area"
    ),
)
def resize_as_tensorflow_1(
    op: Builder, images: Any, size: Any, align_corners: bool = False,
    half_pixel_centers: bool = False, *, method: str,
) -> Value:  # fmt: skip
    """Images resized as by TensorFlow 1."""
    return _resize(
        op, images, size, method, align=bool(align_corners), is_centred=bool(half_pixel_centers)
    )


@operation(BACKEND_FUNCTIONS, "resize_images")
def resize_images(
    op: Builder, x: Any, height_factor: int, width_factor: int, data_format: str | None = None,
    interpolation: str = "nearest", *, tensorflow: int | None = None,
) -> Value:  # fmt: skip
    """Images enlarged by integer factors."""
    value = tensor(op, x)
    first = data_format in ("channels_first", "th")
    value = op.transpose(value, [0, 2, 3, 1]) if first else value
    if interpolation == "nearest":
        made: Value = function(op, "repeat", value, height_factor, 1)
        made = function(op, "repeat", made, width_factor, 2)
    else:
        if not all(isinstance(size, int) for size in value.shape[1:3]):
            raise Unsupported("resizing of images of unknown size")
        size = [
            int(str(m)) * f
            for m, f in zip(value.shape[1:3], (height_factor, width_factor), strict=True)
        ]
        made = _resize(
            op, value, size, interpolation, align=False, is_centred=_is_centred(tensorflow)
        )
    return op.transpose(made, [0, 3, 1, 2]) if first else made


@operation(BACKEND_FUNCTIONS, "temporal_padding")
def temporal_padding(op: Builder, x: Any, padding: Any = (1, 1)) -> Value:
    """Sequences padded with zeros."""
    before, after = (padding, padding) if isinstance(padding, int) else padding
    return function(op, "pad", x, [[0, 0], [before, after], [0, 0]])


@operation(BACKEND_FUNCTIONS, "spatial_2d_padding")
def spatial_2d_padding(
    op: Builder, x: Any, padding: Any = ((1, 1), (1, 1)), data_format: str | None = None
) -> Value:
    """Images padded with zeros."""
    pairs = [[part, part] if isinstance(part, int) else list(part) for part in padding]
    first = data_format in ("channels_first", "th")
    none = [[0, 0]]
    return function(op, "pad", x, [*none, *none, *pairs] if first else [*none, *pairs, *none])


def _form(data_format: str | None, rank: int) -> str:
    letters = "DHW"[3 - rank :] if rank > 1 else "W"
    return f"NC{letters}" if data_format in ("channels_first", "th") else f"N{letters}C"


@operation(BACKEND_FUNCTIONS, "pool2d")
def pool2d(
    op: Builder, x: Any, pool_size: Any, strides: Any = (1, 1), padding: str = "valid",
    data_format: str | None = None, pool_mode: str = "max",
) -> Value:  # fmt: skip
    """The maximum or mean of each window."""
    name = "max_pool" if pool_mode == "max" else "avg_pool"
    return function(
        op, name, x, list(pool_size), list(strides), padding.upper(), _form(data_format, 2)
    )


@operation(BACKEND_FUNCTIONS, "conv1d", "conv2d")
def conv(
    op: Builder, x: Any, kernel: Any, strides: Any = 1, padding: str = "valid",
    data_format: str | None = None, dilation_rate: Any = 1, *, backend: str | None = None,
) -> Value:  # fmt: skip
    """Convolution with a kernel that the code computes."""
    if padding not in ("valid", "same") or backend == "theano":
        raise Unsupported(f"a convolution with {padding} padding on {backend}")
    rank = tensor(op, x).rank - 2
    steps, rates = (
        [part] * rank if isinstance(part, int) else list(part) for part in (strides, dilation_rate)
    )
    form = _form(data_format, rank)
    return function(op, f"conv{rank}d", x, kernel, steps, padding.upper(), form, rates)


@operation(BACKEND_FUNCTIONS, "depthwise_conv2d")
def depthwise_conv2d(
    op: Builder, x: Any, depthwise_kernel: Any, strides: Any = (1, 1), padding: str = "valid",
    data_format: str | None = None, dilation_rate: Any = (1, 1),
) -> Value:  # fmt: skip
    """Depthwise convolution with a kernel that the code computes."""
    form, steps = _form(data_format, 2), [1, *strides, 1]
    if form != "NHWC":
        raise Unsupported("a depthwise convolution of images with channels first")
    return function(
        op, "depthwise_conv2d", x, depthwise_kernel, steps, padding.upper(), form,
        list(dilation_rate),
    )  # fmt: skip


# -- what models of keras.applications are given ---------------------------------------------------

# fmt: off
MODES = {
    "densenet": "torch", "inception_resnet_v2": "tf", "inception_v3": "tf", "mobilenet": "tf",
    "mobilenet_v2": "tf", "nasnet": "tf", "resnet": "caffe", "resnet50": "caffe",
    "resnet_v2": "tf", "vgg16": "caffe", "vgg19": "caffe", "xception": "tf",
    "imagenet_utils": "caffe", "efficientnet": "", "efficientnet_v2": "", "convnext": "",
    "mobilenet_v3": "",
}
# fmt: on


def preprocess(
    op: Builder, kind: str, x: Any, data_format: str | None = None, mode: str | None = None
) -> Value:
    """Return images as the models of one module of keras.applications want them.

    Spec: https://github.com/keras-team/keras/blob/v3.15.0/keras/src/applications/imagenet_utils.py

    Raises:
        Unsupported: Channels are not last, or there is no such module.
    """
    if kind not in MODES or data_format not in (None, "channels_last"):
        raise Unsupported(f"preprocess_input of keras.applications.{kind}")
    image = tensor(op, x)
    mode = MODES[kind] if mode is None else mode
    if mode not in MODES.values():
        raise Unsupported(f"preprocess_input in mode {mode!r}")
    if not mode:
        return image
    if not image.is_float:
        raise Unsupported("preprocess_input of images of whole numbers")
    if mode == "tf":
        return op.sub(op.div(image, 127.5), 1.0)
    if mode == "torch":
        away = op.sub(op.div(image, 255.0), op.constant([0.485, 0.456, 0.406], image.dtype))
        return op.div(away, op.constant([0.229, 0.224, 0.225], image.dtype))
    turned = reverse_axes(op, image, [-1])
    return op.sub(turned, op.constant([103.939, 116.779, 123.68], image.dtype))


# -- colours, turns --------------------------------------------------------------------------------


@operation(TF_CALLED, "image.rot90")
def rot90(op: Builder, image: Any, k: int = 1) -> Value:
    """Images rotated counterclockwise by multiples of 90 degrees."""
    value = tensor(op, image)
    rows, columns = value.rank - 3, value.rank - 2
    for _ in range(k % 4):
        order = list(range(value.rank))
        order[rows], order[columns] = columns, rows
        value = reverse_axes(op, op.transpose(value, order), [rows])
    return value


@operation(TF_CALLED, "image.transpose", "image.transpose_image")
def transpose_image(op: Builder, image: Any) -> Value:
    """Images with rows and columns exchanged."""
    value = tensor(op, image)
    order = list(range(value.rank))
    order[-3], order[-2] = order[-2], order[-3]
    return op.transpose(value, order)


@operation(TF_CALLED, "image.central_crop")
def central_crop(op: Builder, image: Any, central_fraction: Any) -> Value:
    """The center of images: a fraction of each side."""
    value = tensor(op, image)
    if not isinstance(central_fraction, float | int) or not 0 < central_fraction <= 1:
        raise Unsupported("a share that is computed")
    starts, ends = [], []
    for axis in (-3, -2):
        size = known_size(value, axis, "cropping")
        start = int((size - size * float(central_fraction)) / 2)
        starts.append(start)
        ends.append(size - start)
    return op.slice(value, [-3, -2], starts, ends)


MATRICES = {
    "image.rgb_to_yuv": [
        [0.299, -0.14714119, 0.61497538], [0.587, -0.28886916, -0.51496512],
        [0.114, 0.43601035, -0.10001026],
    ],
    "image.yuv_to_rgb": [
        [1, 1, 1], [0, -0.394642334, 2.03206185], [1.13988303, -0.58062185, 0],
    ],
    "image.rgb_to_yiq": [
        [0.299, 0.59590059, 0.2115], [0.587, -0.27455667, -0.52273617],
        [0.114, -0.32134392, 0.31119955],
    ],
}  # fmt: skip


@operation(
    TF_CALLED,
    *(Variant(name, f"{name.partition('.')[2]}(images).", name=name) for name in MATRICES),
)
def convert_colours(op: Builder, images: Any, *, name: str) -> Value:
    """Images in another color space."""
    value = tensor(op, images)
    return op.matmul(value, op.constant(MATRICES[name], value.dtype))
