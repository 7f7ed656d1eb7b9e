"""What Keras and h5py themselves read in a Keras file, as JSON: dataset path, shape, dtype, sha256.

Run in a child process, with the Python of an environment that has keras, tf_keras and h5py:

    <tf python> oracle_keras.py KIND PATH    KIND: keras_h5, keras_weights, keras_zip

Prints one object on stdout. ``tensors`` maps the path of each numeric dataset, as h5py walks the
file, to its facts. Where keras or tf_keras loads the model (compile=False, safe_mode=True),
``loader`` names it, and every variable of the loaded model must be one of the datasets: one that is
not comes into ``tensors`` under the variable's own path, so that a comparison finds it. Files of
Keras 1 are exempt, whose kernels the loaders change.
"""

import hashlib
import io
import json
import os
import sys
import zipfile

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = ""


def facts(value):
    """Describe one numpy array."""
    import numpy as np

    value = np.asarray(value)
    if value.dtype.byteorder == ">":
        value = value.astype(value.dtype.newbyteorder("<"))
    digest = hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()
    return {"shape": list(value.shape), "dtype": value.dtype.name, "sha256": digest}


def datasets(path):
    """Read all numeric datasets of an HDF5 file, or of the one in a .keras archive."""
    import h5py
    import ml_dtypes

    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            name = next(n for n in archive.namelist() if n.endswith("model.weights.h5"))
            path = io.BytesIO(archive.read(name))
    found = {}
    with h5py.File(path, "r") as f:
        version = f.attrs.get("keras_version") or b"3"

        def visit(name, node):
            if not isinstance(node, h5py.Dataset) or node.shape is None:
                return
            value = node[()]
            if node.dtype.kind == "V" and node.attrs.get("dtype") == "bfloat16":
                value = value.view(ml_dtypes.bfloat16)
            elif node.dtype.kind not in "fiubc":
                return
            found[f"/{name}"] = facts(value)

        f.visititems(visit)
    return found, version.decode() if isinstance(version, bytes) else str(version)


def load(path):
    """Return the model as the first official loader that opens it has it, and the loader."""
    problems = []
    for module in ("keras", "tf_keras"):
        try:
            loader = __import__(module)
            if zipfile.is_zipfile(path) and not path.endswith(".keras"):
                raise ValueError("not named .keras")
            model = loader.models.load_model(path, compile=False, safe_mode=True)
            return model, f"{module} {loader.__version__}"
        except Exception as e:  # noqa: BLE001 - the framework's own failure is the answer
            problems.append(f"{module}: {type(e).__name__}: {e}"[:200])
    return None, "; ".join(problems)


def main():
    """Print what the framework reads."""
    kind, path = sys.argv[1:3]
    try:
        found, version = datasets(path)
        answer = {"tensors": found, "loader": "h5py"}
        if kind != "keras_weights":
            model, loader = load(path)
            if model is None:
                answer["not_loaded"] = loader
            else:
                answer["loader"] = loader
                stored = {json.dumps(fact, sort_keys=True) for fact in found.values()}
                lost = {}
                for v in model.weights:
                    fact = facts(v.numpy())
                    name = getattr(v, "path", v.name)
                    if (
                        "seed_generator" not in name
                        and json.dumps(fact, sort_keys=True) not in stored
                    ):
                        lost[name] = fact
                answer["variables"] = [getattr(v, "path", v.name) for v in model.weights]
                if not version.startswith("1."):
                    found.update(lost)
    except Exception as e:  # noqa: BLE001 - the framework's own failure is the answer
        answer = {"error": f"{type(e).__name__}: {e}"[:500]}
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
