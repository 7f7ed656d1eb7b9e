"""Findings about installed packages and whether they fit together: pure functions of a `Host`."""

from collections.abc import Iterator

from packaging.utils import canonicalize_name

from converter.doctor.findings import Finding
from converter.doctor.host import PACKAGES, TENSORFLOW, Host, Version, parse_release
from converter.doctor.rules.requirements import (
    applies,
    describe_environment,
    is_met,
    parse_requirement,
)

# Package → its first release that is built for the binary interface of NumPy 2.
# Spec: https://numpy.org/doc/stable/numpy_2_0_migration_guide.html and each one's release notes
NUMPY_2: dict[str, Version] = {
    "torch": (2, 3), "tensorflow": (2, 18), "tensorflow-cpu": (2, 18), "onnxruntime": (1, 19),
    "onnxruntime-gpu": (1, 19), "h5py": (3, 11), "ml-dtypes": (0, 4), "jaxlib": (0, 4, 26),
}  # fmt: skip
# Backend of Keras 3 → packages, of which one must be installed.
BACKENDS = {
    "tensorflow": TENSORFLOW,
    "jax": ("jax",),
    "torch": ("torch",),
    "openvino": ("openvino",),
    "numpy": ("numpy",),
}
LEGACY_ON = ("true", "True", "1")  # as tensorflow/python/util/lazy_loader.py compares
LEGACY_OFF = (None, "", "0", "false", "False")
MODULES = {"google.protobuf": "protobuf"}


def check_imports(host: Host) -> Iterator[Finding]:
    """Report a package that is installed and cannot be imported."""
    for name, seen in host.seen.items():
        if seen.problem:
            package = host.package(MODULES.get(name, name)) or host.tensorflow
            version = f" {package.version}" if package else ""
            yield Finding(
                "import-fails", "error", name,
                f"import {name} fails (installed:{version or ' unknown version'}): {seen.problem}",
                "Nothing that needs it works here",
                f"pip install --force-reinstall {MODULES.get(name, name)}",
            )  # fmt: skip


def check_duplicates(host: Host) -> Iterator[Finding]:
    """Report a package that is recorded in two versions."""
    for name, records in host.packages.items():
        versions = dict.fromkeys(p.version for p in records)
        if len(versions) > 1:
            listed = "; ".join(f"{p.version} in {p.folder}" for p in records)
            yield Finding(
                "two-versions", "warning", name, f"{name} is recorded more than once: {listed}",
                "The first on the path is imported; pip may count the other",
                f"pip uninstall {name}  (repeat until none is left, then install one)",
            )  # fmt: skip


def check_onnxruntimes(host: Host) -> Iterator[Finding]:
    """Report two distributions that install the module ``onnxruntime``."""
    installed = host.onnxruntimes
    if len(installed) < 2:
        return
    names = " and ".join(f"{p.name} {p.version}" for p in installed)
    winner = next((str(p.build["module_of"]) for p in installed if p.build.get("module_of")), "")
    loses = bool(host.visible_gpus) and winner == "onnxruntime"
    yield Finding(
        "onnxruntime-twice", "error" if loses else "warning", "onnxruntime",
        f"{names} are installed in the same folder, and its files are now those of "
        f"{winner or 'the one installed last'}",
        "The one installed last has overwritten the other; uninstalling either breaks both",
        "pip uninstall " + " ".join(p.name for p in installed) + "; pip install "
        + ("onnxruntime-gpu" if host.visible_gpus else "onnxruntime"),
    )  # fmt: skip


def check_tensorflows(host: Host) -> Iterator[Finding]:
    """Report two distributions that install the module ``tensorflow``."""
    # tensorflow itself requires tensorflow-intel
    own = [name for name in TENSORFLOW if name != "tensorflow-intel"]
    installed = [p for name in own for p in host.packages.get(name, ())[:1]]
    if len(installed) > 1:
        names = " and ".join(f"{p.name} {p.version}" for p in installed)
        yield Finding(
            "tensorflow-twice", "warning", "tensorflow",
            f"{names} are installed in the same folder",
            "The one installed last has overwritten the other",
            "pip uninstall " + " ".join(p.name for p in installed) + "; pip install tensorflow",
        )  # fmt: skip


def check_numpy_abi(host: Host) -> Iterator[Finding]:
    """Report packages that are built for NumPy 1, where NumPy 2 is installed."""
    numpy = host.package("numpy")
    if numpy is None or parse_release(numpy.version) < (2,):
        return
    for name, first in NUMPY_2.items():
        package = host.package(name)
        if package and parse_release(package.version) < first:
            needed = ".".join(map(str, first))
            yield Finding(
                "numpy-abi", "error", name,
                f"{name} {package.version} is built for NumPy 1, and NumPy {numpy.version} is "
                "installed",
                '"A module that was compiled using NumPy 1.x cannot be run in NumPy 2"',
                f"pip install '{name}>={needed}'   or: pip install 'numpy<2'",
            )  # fmt: skip


def check_requirements(host: Host) -> Iterator[Finding]:
    """Report a package in a version that another package excludes."""
    environment = describe_environment(host)
    for owner, *_ in host.packages.values():
        for requirement in filter(None, map(parse_requirement, owner.requires)):
            name = canonicalize_name(requirement.name)
            package = host.package(name)
            if package is None or name not in PACKAGES:
                continue
            if is_met(requirement, package.version) or not applies(requirement, environment):
                continue
            yield Finding(
                "requirement-unmet", "warning", owner.name,
                f"{owner.name} {owner.version} requires {name}{requirement.specifier}, and "
                f"{package.version} is installed",
                "It is not made for that version; what fails depends on what it calls",
                f"pip install '{name}{requirement.specifier}'",
            )  # fmt: skip


def check_keras_and_tensorflow(host: Host) -> Iterator[Finding]:
    """Report a Keras and a TensorFlow that are not made for each other."""
    keras, tensorflow = host.package("keras"), host.tensorflow
    if tensorflow is None:
        return
    release = parse_release(tensorflow.version)
    expects_keras_3 = release >= (2, 16)
    if keras and (parse_release(keras.version) >= (3,)) != expects_keras_3:
        both = f"keras {keras.version} with tensorflow {tensorflow.version}"
        if expects_keras_3:
            yield Finding(
                "keras-2-new-tensorflow", "error", "keras", f"{both}, which expects Keras 3",
                "tf.keras fails to import", "pip install 'keras>=3'",
            )  # fmt: skip
        else:
            yield Finding(
                "keras-3-old-tensorflow", "error", "keras", f"{both}, which expects Keras 2",
                "tf.keras of that TensorFlow is the package keras: it fails or misbehaves",
                "pip install 'keras<3'   or: pip install 'tensorflow>=2.16' 'keras>=3'",
            )  # fmt: skip
    tf_keras = host.package("tf-keras")
    matching = f"pip install 'tf_keras~={'.'.join(tensorflow.version.split('.')[:2])}.0'"
    legacy = host.variables.get("TF_USE_LEGACY_KERAS")
    if legacy in LEGACY_ON and expects_keras_3 and tf_keras is None:
        yield Finding(
            "legacy-keras-missing", "error", "TF_USE_LEGACY_KERAS",
            f"TF_USE_LEGACY_KERAS={legacy}, and tf_keras is not installed",
            '"Keras cannot be imported. Check that it is installed."', matching,
        )  # fmt: skip
    elif legacy not in (*LEGACY_ON, *LEGACY_OFF) and expects_keras_3:
        yield Finding(
            "legacy-keras-ignored", "warning", "TF_USE_LEGACY_KERAS",
            f"TF_USE_LEGACY_KERAS={legacy!r} is not one of {', '.join(LEGACY_ON)}",
            "TensorFlow ignores it: tf.keras is Keras 3", "export TF_USE_LEGACY_KERAS=1",
        )  # fmt: skip
    if tf_keras and parse_release(tf_keras.version)[:2] > release[:2]:
        yield Finding(
            "tf-keras-too-new", "warning", "tf-keras",
            f"tf_keras {tf_keras.version} with tensorflow {tensorflow.version}",
            "They are released together, and made to work in pairs", matching,
        )  # fmt: skip


def check_keras_backend(host: Host) -> Iterator[Finding]:
    """Report a backend of Keras 3 that is unknown or not installed."""
    keras = host.package("keras")
    if keras is None or parse_release(keras.version) < (3,):
        return
    variable = host.variables.get("KERAS_BACKEND")
    chosen = variable or host.keras_backend or "tensorflow"
    origin = "KERAS_BACKEND" if variable else "keras.json" if host.keras_backend else "the default"
    if chosen not in BACKENDS:
        yield Finding(
            "backend-unknown", "error", "keras",
            f"{origin} names the backend {chosen!r}; Keras knows {', '.join(BACKENDS)}",
            f'import keras fails: "Unable to import backend : {chosen}"',
            "export KERAS_BACKEND=tensorflow",
        )  # fmt: skip
    elif chosen != "openvino" and not host.package(*BACKENDS[chosen]):
        installed = [b for b, names in BACKENDS.items() if b != "numpy" and host.package(*names)]
        yield Finding(
            "backend-missing", "error", "keras",
            f"the backend of Keras is {chosen} ({origin}), and {chosen} is not installed",
            f"import keras fails: \"No module named '{chosen}'\"",
            f"export KERAS_BACKEND={installed[0]}" if installed else f"pip install {chosen}",
        )  # fmt: skip


def check_environments(host: Host) -> Iterator[Finding]:
    """Report that the examined Python is not the one of the active environment."""
    active = host.variables.get("VIRTUAL_ENV") or host.variables.get("CONDA_PREFIX") or ""
    if active and host.executable and not host.executable.startswith(active.rstrip("/") + "/"):
        yield Finding(
            "other-environment", "note", "python",
            f"examined {host.executable}; the active environment is {active}",
            "Its packages are not those listed here",
            f"convert doctor --python {active}/bin/python",
        )  # fmt: skip
    for variable in ("CONVERT_TENSORFLOW_PYTHON", "CONVERT_TORCH_PYTHON"):
        other = host.variables.get(variable)
        if other and other != host.executable:
            yield Finding(
                "other-python", "note", "python",
                f"{variable}={other}: convert runs its verifications there",
                "Its packages are not those listed here", f"convert doctor --python {other}",
            )  # fmt: skip


def check_command(host: Host) -> Iterator[Finding]:
    """Report that the command ``convert`` is another program: ImageMagick has one of this name."""
    if host.other_convert:
        yield Finding(
            "other-convert", "note", "convert",
            f"the command `convert` runs {host.other_convert}, which is another program",
            "ImageMagick installs a command of this name, and it is found first",
            "model-convert, or python -m converter: the same program under other names",
        )  # fmt: skip


RULES = (
    check_command, check_imports, check_duplicates, check_onnxruntimes, check_tensorflows,
    check_numpy_abi, check_requirements, check_keras_and_tensorflow, check_keras_backend,
    check_environments,
)  # fmt: skip
