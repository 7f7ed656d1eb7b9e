"""The folder that MLflow registers: a converted model with its `MLmodel` file.

Written by hand and not by MLflow, whose ONNX flavor would want the weights in memory, and onnx
itself. Its loader hands ``model.onnx`` to onnxruntime where it lies and looks for `MLmodel` in that
very folder: so a bundle lies at the root, its graph beside the weights that it points into. Loads
with MLflow 2 and 3.

Spec: https://mlflow.org/docs/latest/ml/model/#mlmodel-file-format
"""

import platform
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from converter.jobs.record import Record
from converter.lower.encoded import AS_INPUT
from converter.registries.entry import Staged
from converter.registries.mlmodel import FILE
from converter.version import VERSION
from formats.errors import StorageError

GRAPH = "model.onnx"  # as `converter.write.graph_files` calls it, which imports numpy
OWN = "model_convert"  # flavor: of every output, those without a graph too
# What loading and running the graph takes; versions are those that the bundle's opsets need.
REQUIREMENTS = ("mlflow", "numpy", "onnx>=1.17", "onnxruntime>=1.20")
LOADER = "mlflow.onnx"
PROVIDERS = ["CUDAExecutionProvider", "CPUExecutionProvider"]  # MLflow's own default, in order


def arrange(made: Path, folder: Path) -> Path:
    """Return a folder with an output in the layout that MLflow expects.

    Args:
        made: The output, which is moved: a folder, or one file.
        folder: Where to make one for a file; not there yet.

    Raises:
        StorageError: It cannot be moved.
    """
    if made.is_dir():
        return made
    try:
        folder.mkdir()
        return made.rename(folder / f"model{made.suffix}").parent
    except OSError as e:
        raise StorageError.writing(folder, e) from e


def describe(
    folder: Path, staged: Staged, record: Record, server_fields: Mapping[str, Any]
) -> None:
    """Write the files that MLflow reads.

    Args:
        folder: With the output.
        staged: The source; its signature is the output's, unless inputs were replaced.
        record: What is known of the conversion.
        server_fields: Of the `MLmodel`, what the server decides: ``model_id``, ``run_id``.

    Raises:
        StorageError: They cannot be written.
    """
    import yaml

    has_graph = (folder / GRAPH).is_file()
    python = platform.python_version()
    needed = list(REQUIREMENTS) if has_graph else []
    environment = {
        "name": "mlflow-env",
        "channels": ["conda-forge"],
        "dependencies": [f"python={python}", "pip", {"pip": needed}],
    }
    builds = {
        "python": python,
        "build_dependencies": ["pip"],
        "dependencies": ["-r requirements.txt"],
    }
    document: dict[str, Any] = {
        "flavors": _flavors(record, python, has_graph=has_graph),
        "utc_time_created": time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime()),
        "metadata": {
            "converted_from": record.source,
            "converted_by": f"model-convert {VERSION}",
            "source_digest": record.source_digest,
        },
        **server_fields,
    }
    signature = staged.facts.get("signature")
    # What stands for bytes that are decoded are inputs that the source's signature has not.
    is_another = any(n["name"].endswith(AS_INPUT) for n in record.normalisations)
    if isinstance(signature, dict) and not is_another:
        document["signature"] = signature
    texts = {
        "requirements.txt": "".join(f"{line}\n" for line in needed),
        "python_env.yaml": yaml.safe_dump(builds, sort_keys=False),
        "conda.yaml": yaml.safe_dump(environment, sort_keys=False),
        FILE: yaml.safe_dump(document, sort_keys=False, allow_unicode=True),
    }
    for name, text in texts.items():
        try:
            (folder / name).write_text(text, "utf-8")
        except OSError as e:
            raise StorageError.writing(folder / name, e) from e


def describe_parts(folder: Path) -> tuple[str, ...]:
    """Return a warning where there are several graphs, of which MLflow's flavor loads one or none.

    The encoder and decoders of a model, or the components of a pipeline, are no one graph.
    """
    graphs = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.onnx"))
    if len(graphs) < 2:
        return ()
    loaded = f"{GRAPH} alone" if GRAPH in graphs else "none of them"
    said = f"{len(graphs)} graphs, {', '.join(graphs)}: MLflow's ONNX flavor loads {loaded}"
    return (f"{said}; the library that runs them loads the downloaded folder",)


def _flavors(record: Record, python: str, *, has_graph: bool) -> dict[str, Any]:
    """Return the flavors: MLflow's ONNX flavor where there is a graph, and ours."""
    own = {"data": ".", "to": record.to, "version": VERSION}
    if not has_graph:
        return {OWN: own}
    return {
        "onnx": {
            "data": GRAPH,
            "onnx_version": "1.17.0",
            "providers": PROVIDERS,
            "onnx_session_options": None,
            "code": None,
        },
        "python_function": {
            "loader_module": LOADER,
            "data": GRAPH,
            "python_version": python,
            "env": {"conda": "conda.yaml", "virtualenv": "python_env.yaml"},
        },
        OWN: own,
    }
