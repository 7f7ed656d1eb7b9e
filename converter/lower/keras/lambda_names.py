"""Resolve dotted names in a Lambda's function: to constants, or rows of our tables.

Nothing is imported: a name that is in no table is not supported, and the message says it.
"""

from dataclasses import dataclass, replace
from typing import Any

from converter.lower.element_types import ELEMENT_TYPES
from converter.lower.keras import lambda_python as py
from converter.lower.keras.lambda_values import Dtype, Named
from converter.lower.keras.table import (
    BACKEND_FUNCTIONS,
    OPERATIONS,
    TF_CALLED,
    TF_FUNCTIONS,
    Row,
)
from converter.lower.unsupported import Unsupported

# fmt: off
# Global names, and what everybody means by them.
GLOBALS = {
    "K": "keras.backend", "KB": "keras.backend", "backend": "keras.backend",
    "keras_backend": "keras.backend", "kb": "keras.backend", "kbackend": "keras.backend",
    "tf": "tensorflow", "tensorflow": "tensorflow", "ktf": "tensorflow", "KTF": "keras.backend",
    "np": "numpy", "numpy": "numpy", "math": "math",
    "keras": "keras", "ops": "keras.ops", "layers": "keras.layers", "KL": "keras.layers",
    "activations": "keras.activations",
    "imagenet_utils": "keras.applications.imagenet_utils",
}
# The same by another name, or seen through another module.
ALIASES = {
    "tensorflow.compat.v1": "tensorflow1", "tensorflow.compat.v2": "tensorflow2",
    "tensorflow.python.keras": "keras", "tensorflow.keras": "keras", "tensorflow1.keras": "keras",
    "tensorflow2.keras": "keras", "tensorflow.contrib.keras": "keras", "tf_keras": "keras",
    "keras.backend.tensorflow_backend": "keras.backend", "keras.backend.tf": "tensorflow",
    "keras.backend.np": "numpy", "keras.backend.math_ops": "tensorflow.math",
    "keras.src": "keras", "keras.api": "keras", "keras.layers.core.K": "keras.backend",
    "tensorflow.python.ops.math_ops": "tensorflow", "tensorflow.python.ops.nn": "tensorflow.nn",
    "tensorflow.python.ops.array_ops": "tensorflow",
}
# Keras 3's own functions whose class is not their name in other letters.
CLASSES = {
    "relu": "ReLU", "rfft": "RFFT", "irfft": "IRFFT", "fft": "FFT", "fft2": "FFT2",
    "stft": "STFT", "image.rgb_to_grayscale": "RGBToGrayscale", "layer_normalization": "LayerNorm",
    "rms_normalization": "RMSNorm", "isin": "IsIn", "psnr": "PSNR", "isclose": "Isclose",
}
# In front of functions that mean the same without it, as of TFOpLambdas.
NAMESPACES = ("math.", "nn.", "linalg.", "dtypes.")
KINDS = {
    "bool_": "bool", "float": "float64", "int": "int64", "double": "float64", "half": "float16",
}
# fmt: on
# Keras 3's functions without a class: those of its backend.
MAKERS = ("arange", "eye", "is_tensor", "ones", "zeros")
# TensorFlow's functions by older names, with the same arguments.
RENAMED = {
    "matrix_band_part": "band_part", "matrix_diag_part": "diag_part", "realdiv": "truediv",
    "extract_image_patches": "image.extract_patches", "reverse_v2": "reverse",
    "image.extract_image_patches": "image.extract_patches", "arg_max": "argmax",
    "arg_min": "argmin", "concat_v2": "concat", "lin_space": "linspace",
}  # fmt: skip
ROOTS = ("tensorflow", "tensorflow1", "tensorflow2")
LONGEST = sorted(ALIASES, key=len, reverse=True)


@dataclass(frozen=True, slots=True)
class Setting:
    """The versions and backend that a model's functions were written for.

    Attributes:
        keras: Major version of the Keras that wrote it.
        tensorflow: Major version of the TensorFlow under it; None where it is unknown.
        backend: Backend as recorded; None if it is not recorded.
        data_format: Data format of the model's images, if its layers agree.
    """

    keras: int = 2
    tensorflow: int | None = None
    backend: str | None = None
    data_format: str | None = None


def resolve_global(name: str) -> Any:
    """Return the value of a global name.

    Raises:
        Unsupported: Nobody knows.
    """
    if f"builtins.{name}" in py.CONSTANTS:
        return py.CONSTANTS[f"builtins.{name}"]
    if name in py.BUILTINS or name in py.KINDS:
        return Named(f"builtins.{name}")
    if name not in GLOBALS:
        raise Unsupported(f"its code uses {name!r} of the module that it was written in")
    return Named(GLOBALS[name])


def member(of: Named, name: str) -> Any:
    """Return the value of a name in a module: a number, a dtype, or another name."""
    path = canonical(f"{of.path}.{name}")
    if path in py.CONSTANTS:
        return py.CONSTANTS[path]
    root, _, last = path.rpartition(".")
    if root in (*ROOTS, "numpy", "tensorflow.dtypes"):
        kind = KINDS.get(last, last)
        if kind in ELEMENT_TYPES and kind != "string":
            return Dtype(kind)
    return Named(path)


def specify_setting(path: str, setting: Setting) -> Setting:
    """Return the setting in which a function is called: that which its own name says."""
    major = path.partition(".")[0].removeprefix("tensorflow")
    return replace(setting, tensorflow=int(major)) if major in ("1", "2") else setting


def canonical(path: str) -> str:
    """Return a dotted name as the tables have it."""
    for _ in range(len(ALIASES)):
        alias = next((a for a in LONGEST if path == a or path.startswith(f"{a}.")), None)
        if alias is None:
            break
        path = ALIASES[alias] + path[len(alias) :]
    return path


def row(path: str) -> Row:
    """Return the row of a function.

    Raises:
        Unsupported: There is no such row.
    """
    root, _, rest = path.partition(".")
    found: Row | None = None
    if path.startswith("keras.backend."):
        found = BACKEND_FUNCTIONS.get(rest.removeprefix("backend."))
    elif path.startswith("keras.ops."):
        found = _operation(rest.removeprefix("ops."))
    elif root in ROOTS:
        found = _of_tensorflow(rest)
    if found is None:
        raise Unsupported(f"its code calls {path}")
    return found


def _operation(name: str) -> Row | None:
    """Return the row of a function of keras.ops, which is called as its class but for the case."""
    bare = name
    for head in ("numpy.", "nn.", "core."):
        bare = bare.removeprefix(head)
    camel = "".join(part[:1].upper() + part[1:] for part in bare.rpartition(".")[2].split("_"))
    if bare in MAKERS:
        return BACKEND_FUNCTIONS.get(bare)
    return OPERATIONS.get(CLASSES.get(bare, camel))


def _of_tensorflow(name: str) -> Row | None:
    bare = name
    for head in NAMESPACES:
        bare = bare.removeprefix(head)
    bare = RENAMED.get(bare, bare)
    return TF_CALLED.get(bare) or TF_FUNCTIONS.get(bare)
