"""Models of Triton repositories: ``config.pbtxt`` and numbered versions with an ONNX graph.

Triton serves the highest version unless its policy says otherwise, so that one is read.
Spec: https://github.com/triton-inference-server/common/blob/main/protobuf/model_config.proto
"""

from formats.artifact import Artifact
from formats.containers.protobuf import text_format
from formats.containers.protobuf.messages import Message, Schema
from formats.core.storage import Span
from formats.errors import ConvertError

CONFIGURATION = "config.pbtxt"
BACKENDS = ("onnxruntime", "onnxruntime_onnx")  # values of the fields backend and platform
DEFAULT_FILE = "model.onnx"
RECORDED = ("backend", "platform", "max_batch_size", "instance_group", "dynamic_batching")

# fmt: off
SCHEMA = Schema(
    {
        "ModelConfig": {
            1: "name string", 2: "platform string", 4: "max_batch_size int32",
            7: "instance_group ModelInstanceGroup*", 8: "default_model_filename string",
            11: "dynamic_batching ModelDynamicBatching", 17: "backend string",
        },
        "ModelInstanceGroup": {
            2: "count int32", 3: "gpus int32*", 4: "kind ModelInstanceGroup.Kind",
        },
        "ModelDynamicBatching": {
            1: "preferred_batch_size int32*", 2: "max_queue_delay_microseconds uint64",
        },
    },
    {
        "ModelInstanceGroup.Kind": {
            0: "KIND_AUTO", 1: "KIND_GPU", 2: "KIND_CPU", 3: "KIND_MODEL",
        },
    },
)
# fmt: on


def find_model(artifact: Artifact) -> str | None:
    """Return the path of the ONNX file that Triton serves, in a model's folder; None in others."""
    try:
        config = _read_configuration(artifact)
        if config is None:
            return None
        if {config.backend, config.platform} - {"", *BACKENDS}:
            return None
        version = max(filter(_is_version, artifact.names), key=int, default=None)
        name = f"{version}/{config.default_model_filename or DEFAULT_FILE}"
        if version is None or not (artifact.path / name).is_dir():
            return name if version is not None and (artifact.path / name).is_file() else None
        inside = Artifact(artifact.path / name, artifact.limits).names
    except ConvertError:
        return None
    models = [one for one in inside if one.lower().endswith(".onnx")]
    return f"{name}/{models[0]}" if len(models) == 1 else None


def describe_configuration(artifact: Artifact) -> dict[str, str]:
    """Return how Triton serves a model, as far as its configuration says so."""
    config = _read_configuration(artifact)
    if config is None:
        return {}
    found = {f"triton_{name}": _spell(config, name) for name in RECORDED if config.has(name)}
    versions = sorted(filter(_is_version, artifact.names), key=int)
    return {"triton_versions": ", ".join(versions), **found}


def _read_configuration(artifact: Artifact) -> Message | None:
    """Return the configuration of a model's folder, or None.

    Raises:
        CorruptError: It is no text of its message.
    """
    if CONFIGURATION not in artifact.names:
        return None
    span = Span.whole(artifact.member(CONFIGURATION))
    return text_format.parse(span, SCHEMA["ModelConfig"], SCHEMA, artifact.limits)


def _is_version(name: str) -> bool:
    return name.isascii() and name.isdigit() and not name.startswith("0")


def _spell(config: Message, name: str) -> str:
    """Return a field as a string."""
    value = getattr(config, name)
    if name == "instance_group":
        return "; ".join(map(_spell_instances, value))
    if name == "dynamic_batching":
        sizes = ", ".join(map(str, value.preferred_batch_size)) or "any"
        delay = value.max_queue_delay_microseconds
        return f"batch sizes {sizes}, delay {delay} us"
    return str(value)


def _spell_instances(group: Message) -> str:
    kind = SCHEMA.enums["ModelInstanceGroup.Kind"][group.kind].removeprefix("KIND_")
    gpus = "".join(f", gpu {number}" for number in group.gpus)
    return f"{group.count or 1} on {kind}{gpus}"
