"""Findings about installed packages and how they fit together: pure functions of a `Host`."""

from collections.abc import Iterator

from converter.doctor.findings import Finding
from converter.doctor.host import PACKAGES, TENSORFLOW, Host, Version, numbers
from converter.doctor.rules.requirements import counts, met, parse

# Package -> its first release that is built for NumPy 2's binary interface.
# Spec: https://numpy.org/doc/stable/numpy_2_0_migration_guide.html and each one's release notes
NUMPY_2: dict[str, Version] = {
    "torch": (2, 3), "tensorflow": (2, 18), "tensorflow-cpu": (2, 18), "onnxruntime": (1, 19),
    "onnxruntime-gpu": (1, 19), "h5py": (3, 11), "ml-dtypes": (0, 4), "jaxlib": (0, 4, 26),
}  # fmt: skip
# Back end of Keras 3 -> what must be installed for it.
BACKENDS = {
    "tensorflow": TENSORFLOW,
    "jax": ("jax",),
    "torch": ("torch",),
    "openvino": ("openvino",),
    "numpy": ("numpy",),
}
LEGACY_ON = ("true", "True", "1")  # as tensorflow/python/util/lazy_loader.py compares
MODULES = {"google.protobuf": "protobuf"}


def unimportable(host: Host) -> Iterator[Finding]:
    """A package is installed and cannot be imported."""
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


def two_records(host: Host) -> Iterator[Finding]:
    """One package is recorded twice, in one folder or in two."""
    for name, records in host.packages.items():
        versions = dict.fromkeys(p.version for p in records)
        if len(versions) > 1:
            places = "; ".join(f"{p.version} in {p.folder}" for p in records)
            yield Finding(
                "two-versions", "warning", name, f"{name} is recorded more than once: {places}",
                "The first on the path is imported; pip may count the other",
                f"pip uninstall {name}  (until none is left, then install one)",
            )  # fmt: skip


def onnxruntimes(host: Host) -> Iterator[Finding]:
    """Two distributions fill the one module ``onnxruntime``."""
    found = host.onnxruntimes
    if len(found) < 2:
        return
    names = " and ".join(f"{p.name} {p.version}" for p in found)
    winner = next((str(p.build["module_of"]) for p in found if p.build.get("module_of")), "")
    loses = bool(host.visible_gpus) and winner == "onnxruntime"
    yield Finding(
        "onnxruntime-twice", "error" if loses else "warning", "onnxruntime",
        f"{names} are installed; they fill the same folder, and its files are now those of "
        f"{winner or 'whichever came last'}",
        "Whichever was installed last has overwritten the other; uninstalling either breaks both",
        "pip uninstall " + " ".join(p.name for p in found) + "; pip install "
        + ("onnxruntime-gpu" if host.visible_gpus else "onnxruntime"),
    )  # fmt: skip


def tensorflows(host: Host) -> Iterator[Finding]:
    """Two distributions fill the one module ``tensorflow``."""
    found = [p for name in TENSORFLOW for p in host.packages.get(name, ())[:1]]
    real = [p for p in found if p.name != "tensorflow-intel"]  # which tensorflow itself brings
    if len(real) > 1:
        names = " and ".join(f"{p.name} {p.version}" for p in real)
        yield Finding(
            "tensorflow-twice", "warning", "tensorflow",
            f"{names} are installed, and fill the same folder",
            "Whichever was installed last has overwritten the other",
            "pip uninstall " + " ".join(p.name for p in real) + "; pip install tensorflow",
        )  # fmt: skip


def numpy_abi(host: Host) -> Iterator[Finding]:
    """NumPy 2 is here, with packages that were built for NumPy 1."""
    if host.version("numpy") < (2,):
        return
    for name, first in NUMPY_2.items():
        package = host.package(name)
        if package and numbers(package.version) < first:
            needed = ".".join(map(str, first))
            yield Finding(
                "numpy-abi", "error", name,
                f"{name} {package.version} is built for NumPy 1, and NumPy "
                f"{host.package('numpy').version} is installed",  # type: ignore[union-attr]
                '"A module that was compiled using NumPy 1.x cannot be run in NumPy 2"',
                f"pip install '{name}>={needed}'   or: pip install 'numpy<2'",
            )  # fmt: skip


def requirements(host: Host) -> Iterator[Finding]:
    """A package is here in a version that another one excludes."""
    facts = {
        "python_version": ".".join(host.python.split(".")[:2]),
        "platform_machine": host.machine,
        "sys_platform": "linux" if host.system.startswith("Linux") else "",
    }
    known = {k: v for k, v in facts.items() if v}
    for records in host.packages.values():
        for text in records[0].requires:
            wanted = parse(text)
            if wanted is None or not counts(wanted.marker, known):
                continue
            have = host.package(wanted.name)
            if have is None or wanted.name not in PACKAGES or met(have.version, wanted.specifier):
                continue
            owner = records[0]
            yield Finding(
                "requirement-unmet", "warning", owner.name,
                f"{owner.name} {owner.version} wants {wanted.name}{wanted.specifier}, and "
                f"{have.version} is installed",
                "It was not made to work with that; what fails depends on what it calls",
                f"pip install '{wanted.name}{wanted.specifier}'",
            )  # fmt: skip


def keras_and_tensorflow(host: Host) -> Iterator[Finding]:
    """Keras and TensorFlow do not belong to each other."""
    keras, flow = host.package("keras"), host.tensorflow
    if keras and flow and numbers(keras.version) >= (3,) and numbers(flow.version) < (2, 16):
        yield Finding(
            "keras-3-old-tensorflow", "error", "keras",
            f"keras {keras.version} with tensorflow {flow.version}, which expects Keras 2",
            "tf.keras of that TensorFlow is the package keras: it fails or misbehaves",
            "pip install 'keras<3'   or: pip install 'tensorflow>=2.16' 'keras>=3'",
        )  # fmt: skip
    if keras and flow and numbers(keras.version) < (3,) and numbers(flow.version) >= (2, 16):
        yield Finding(
            "keras-2-new-tensorflow", "error", "keras",
            f"keras {keras.version} with tensorflow {flow.version}, which expects Keras 3",
            "tf.keras fails to import", "pip install 'keras>=3'",
        )  # fmt: skip
    legacy = host.variables.get("TF_USE_LEGACY_KERAS")
    if legacy is not None and flow and numbers(flow.version) >= (2, 16):
        if legacy in LEGACY_ON and not host.package("tf-keras"):
            yield Finding(
                "legacy-keras-missing", "error", "TF_USE_LEGACY_KERAS",
                f"TF_USE_LEGACY_KERAS={legacy}, and tf_keras is not installed",
                '"Keras cannot be imported. Check that it is installed."',
                f"pip install 'tf_keras~={'.'.join(flow.version.split('.')[:2])}.0'",
            )  # fmt: skip
        elif legacy not in LEGACY_ON and legacy not in ("", "0", "false", "False"):
            yield Finding(
                "legacy-keras-ignored", "warning", "TF_USE_LEGACY_KERAS",
                f"TF_USE_LEGACY_KERAS={legacy!r} is not one of {', '.join(LEGACY_ON)}",
                "TensorFlow ignores it: tf.keras is Keras 3", "export TF_USE_LEGACY_KERAS=1",
            )  # fmt: skip
    legacy_keras = host.package("tf-keras")
    if legacy_keras and flow and numbers(legacy_keras.version)[:2] > numbers(flow.version)[:2]:
        yield Finding(
            "tf-keras-too-new", "warning", "tf-keras",
            f"tf_keras {legacy_keras.version} with tensorflow {flow.version}",
            "They are released together, and made to work in pairs",
            f"pip install 'tf_keras~={'.'.join(flow.version.split('.')[:2])}.0'",
        )  # fmt: skip


def keras_backend(host: Host) -> Iterator[Finding]:
    """Keras 3 is told to use a back end that is not here, or unknown."""
    keras = host.package("keras")
    if keras is None or numbers(keras.version) < (3,):
        return
    variable = host.variables.get("KERAS_BACKEND")
    chosen = variable or host.keras_backend or "tensorflow"
    source = "KERAS_BACKEND" if variable else "keras.json" if host.keras_backend else "the default"
    if chosen not in BACKENDS:
        yield Finding(
            "backend-unknown", "error", "keras",
            f"{source} names the back end {chosen!r}; Keras knows {', '.join(BACKENDS)}",
            f'import keras fails: "Unable to import backend : {chosen}"',
            "export KERAS_BACKEND=tensorflow",
        )  # fmt: skip
    elif chosen != "openvino" and not host.package(*BACKENDS[chosen]):
        here = [b for b, names in BACKENDS.items() if b != "numpy" and host.package(*names)]
        yield Finding(
            "backend-missing", "error", "keras",
            f"Keras' back end is {chosen} ({source}), and {chosen} is not installed",
            f"import keras fails: \"No module named '{chosen}'\"",
            f"export KERAS_BACKEND={here[0]}" if here else f"pip install {chosen}",
        )  # fmt: skip


def environments(host: Host) -> Iterator[Finding]:
    """The doctor looks at another environment than the one that is active."""
    active = host.variables.get("VIRTUAL_ENV") or host.variables.get("CONDA_PREFIX") or ""
    if active and host.executable and not host.executable.startswith(active.rstrip("/") + "/"):
        yield Finding(
            "other-environment", "note", "python",
            f"looked at {host.executable}; the active environment is {active}",
            "Its packages are not those listed here",
            f"convert doctor --python {active}/bin/python",
        )  # fmt: skip
    for variable in ("CONVERT_TENSORFLOW_PYTHON", "CONVERT_TORCH_PYTHON"):
        other = host.variables.get(variable)
        if other and other != host.executable:
            yield Finding(
                "other-python", "note", "python",
                f"{variable}={other}: what convert verifies with runs there",
                "Its packages are not those listed here", f"convert doctor --python {other}",
            )  # fmt: skip


RULES = (
    unimportable, two_records, onnxruntimes, tensorflows, numpy_abi, requirements,
    keras_and_tensorflow, keras_backend, environments,
)  # fmt: skip
