"""What an artifact records, beside what is here: only where the two differ."""

import sys
from dataclasses import dataclass

from converter.doctor.host import Host, numbers
from converter.doctor.loaders import tensorflow as tensorflow_rules
from converter.doctor.loaders import torch as torch_rules
from converter.doctor.source import Source


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that is recorded otherwise than it is here.

    Attributes:
        what: ``keras``, ``tensorflow``, ``torch``, ``back end``, ``device``, ``byte order``.
        recorded: In the artifact's words.
        here: What this host has.
    """

    what: str
    recorded: str
    here: str


def compare(source: Source, host: Host) -> tuple[Difference, ...]:
    """Return what differs between an artifact's record and this host."""
    found = [*_versions(source, host), *_devices(source, host)]
    order = source.recorded.get("byteorder") or source.recorded.get("written_on")
    if order in ("little", "big") and order != sys.byteorder:
        found.append(Difference("byte order", order, sys.byteorder))
    return tuple(found)


def _versions(source: Source, host: Host) -> list[Difference]:
    found = []
    flow = host.tensorflow
    for key, what, package in (
        ("keras_version", "keras", host.package("keras", "tf-keras")),
        ("tensorflow_version", "tensorflow", flow),
        ("torch_version", "torch", host.package("torch")),
    ):
        recorded = source.recorded.get(key)
        here = package.version if package else "not installed"
        if recorded and numbers(recorded) != numbers(here):
            found.append(Difference(what, recorded, here))
    backend = source.recorded.get("backend")
    chosen = host.variables.get("KERAS_BACKEND") or host.keras_backend or "tensorflow"
    if source.keras and backend and host.package("keras") and backend != chosen:
        found.append(Difference("back end", backend, chosen))
    return found


def _devices(source: Source, host: Host) -> list[Difference]:
    """Return the recorded devices that the artifact's framework does not have here."""
    named = dict.fromkeys([*source.devices, *(source.torch.code_devices if source.torch else ())])
    if source.torch or source.format.startswith("torch"):
        here = torch_rules.view(host)
        absent = [d for d in named if torch_rules.device_refusal(d, here)]
        kinds = [("cuda", here.cuda_devices), ("mps", int(here.mps)), ("xpu", int(here.xpu))]
        sees = ", ".join(f"{n} {kind}" for kind, n in kinds if n) or "the CPU alone"
    elif source.tensorflow:
        count = tensorflow_rules.gpus(host)
        absent = [d for d in named if (tensorflow_rules.gpu_index(d) or 0) >= count
                  and tensorflow_rules.gpu_index(d) is not None]  # fmt: skip
        sees = f"{count} GPU(s)" if count else "the CPU alone"
    else:
        return []
    if not absent:
        return []
    return [Difference("device", ", ".join(absent), sees)]
