"""Where the record of an artifact differs from this host."""

import sys
from dataclasses import dataclass

from converter.doctor.host import Host, parse_release
from converter.doctor.loaders.tensorflow import count_gpus, parse_gpu_index
from converter.doctor.loaders.torch import check_device, find_torch
from converter.doctor.source import Source


@dataclass(frozen=True, slots=True)
class Difference:
    """A recorded fact that differs from this host.

    Attributes:
        what: ``keras``, ``tensorflow``, ``torch``, ``backend``, ``device``, ``byte order``.
        recorded: As the artifact records it.
        here: What this host has.
    """

    what: str
    recorded: str
    here: str


def find_differences(source: Source, host: Host) -> tuple[Difference, ...]:
    """Return the recorded versions, devices and byte order that this host does not have."""
    found = [*_compare_versions(source, host), *_compare_devices(source, host)]
    order = source.recorded.get("byteorder") or source.recorded.get("written_on")
    if order in ("little", "big") and order != sys.byteorder:
        found.append(Difference("byte order", order, sys.byteorder))
    return tuple(found)


def _compare_versions(source: Source, host: Host) -> list[Difference]:
    found = []
    for key, what, package in (
        ("keras_version", "keras", host.package("keras", "tf-keras")),
        ("tensorflow_version", "tensorflow", host.tensorflow),
        ("torch_version", "torch", host.package("torch")),
    ):
        recorded = source.recorded.get(key)
        here = package.version if package else "not installed"
        if recorded and parse_release(recorded) != parse_release(here):
            found.append(Difference(what, recorded, here))
    backend = source.recorded.get("backend")
    chosen = host.variables.get("KERAS_BACKEND") or host.keras_backend or "tensorflow"
    if source.keras and backend and host.package("keras") and backend != chosen:
        found.append(Difference("backend", backend, chosen))
    return found


def _compare_devices(source: Source, host: Host) -> list[Difference]:
    """Return the named devices that the artifact's framework does not have here."""
    if source.torch or source.format.startswith("torch"):
        torch = find_torch(host)
        absent = [d for d in source.named_devices if check_device(d, torch)]
        kinds = [("cuda", torch.cuda_devices), ("mps", int(torch.mps)), ("xpu", int(torch.xpu))]
        sees = ", ".join(f"{n} {kind}" for kind, n in kinds if n) or "only the CPU"
    elif source.tensorflow:
        count = count_gpus(host)
        indices = {device: parse_gpu_index(device) for device in source.named_devices}
        absent = [d for d, index in indices.items() if index is not None and index >= count]
        sees = f"{count} GPU(s)" if count else "only the CPU"
    else:
        return []
    return [Difference("device", ", ".join(absent), sees)] if absent else []
