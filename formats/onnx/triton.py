"""Models of Triton repositories: ``config.pbtxt`` and numbered versions with an ONNX graph.

Triton serves the highest version unless its policy names others, so that one is read.
Spec: https://github.com/triton-inference-server/common/blob/main/protobuf/model_config.proto
"""

from collections.abc import Iterable

from formats.artifact import Artifact
from formats.containers.protobuf import text_format
from formats.containers.protobuf.messages import Message, Schema
from formats.core.storage import Span
from formats.errors import ConvertError
from formats.limits import DEFAULT, Limits

CONFIGURATION = "config.pbtxt"
BACKENDS = ("onnxruntime", "onnxruntime_onnx")  # values of the fields backend and platform
DEFAULT_FILE = "model.onnx"
RECORDED = ("backend", "platform", "max_batch_size", "instance_group", "dynamic_batching")

# fmt: off
SCHEMA = Schema(
    {
        "ModelConfig": {
            1: "name string", 2: "platform string",
            3: "version_policy ModelVersionPolicy", 4: "max_batch_size int32",
            7: "instance_group ModelInstanceGroup*", 8: "default_model_filename string",
            11: "dynamic_batching ModelDynamicBatching", 17: "backend string",
        },
        "ModelVersionPolicy": {3: "specific ModelVersionPolicy.Specific"},
        "ModelVersionPolicy.Specific": {1: "versions int64*"},
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
    if CONFIGURATION not in artifact.names:
        return None
    try:
        configuration = Span.whole(artifact.member(CONFIGURATION))
        name = name_served_file(configuration, artifact.names, artifact.limits)
        if name is None or not (artifact.path / name).is_dir():
            return name if name is not None and (artifact.path / name).is_file() else None
        inside = Artifact(artifact.path / name, artifact.limits).names
    except ConvertError:
        return None
    models = [one for one in inside if one.lower().endswith(".onnx")]
    return f"{name}/{models[0]}" if len(models) == 1 else None


def name_served_file(
    configuration: Span, names: Iterable[str], limits: Limits = DEFAULT
) -> str | None:
    """Return the path of what Triton serves with ONNX Runtime; None for another backend.

    Args:
        configuration: Of the model.
        names: Of the folders beside it.
        limits: What reading it may cost.

    Raises:
        CorruptError: The configuration is no text of its message.
    """
    config = _parse(configuration, limits)
    if {config.backend, config.platform} - {"", *BACKENDS}:
        return None
    versions = {int(name) for name in names if is_version(name)}
    versions = versions.intersection(config.version_policy.specific.versions) or versions
    file = config.default_model_filename or DEFAULT_FILE
    return f"{max(versions)}/{file}" if versions else None


def is_version(name: str) -> bool:
    """Return whether Triton takes a folder for a version of a model."""
    return name.isascii() and name.isdigit() and not name.startswith("0")


def describe_configuration(artifact: Artifact) -> dict[str, str]:
    """Return how Triton serves a model, as far as its configuration says so."""
    if CONFIGURATION not in artifact.names:
        return {}
    config = _parse(Span.whole(artifact.member(CONFIGURATION)), artifact.limits)
    found = {f"triton_{name}": _spell(config, name) for name in RECORDED if config.has(name)}
    versions = sorted(filter(is_version, artifact.names), key=int)
    return {"triton_versions": ", ".join(versions), **found}


def _parse(configuration: Span, limits: Limits) -> Message:
    return text_format.parse(configuration, SCHEMA["ModelConfig"], SCHEMA, limits)


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
