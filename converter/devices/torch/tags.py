"""Replace devices in a torch pickle: locations of storages, and ``torch.device`` objects.

A storage is a persistent id ``("storage", class, key, location, elements)``; a device is a call of
``torch.device`` with one string (TorchScript, and Python for ``cpu``) or with a string and an
integer (Python). Only these are changed. A string that looks like a device is the user's own.

Spec: https://github.com/pytorch/pytorch/blob/v2.13.0/torch/csrc/jit/serialization/pickler.cpp
(pushStorageOfTensor, pushDevice), https://github.com/pytorch/pytorch/blob/v2.13.0/torch/csrc/Device.cpp
(THPDevice_reduce)
"""

import re
from collections import Counter
from dataclasses import dataclass, field

from converter.devices.names import TORCH_KINDS, TorchDevice
from formats.containers.pickle.rewriting import Made, Number, Text, Tracer, encode_number
from formats.containers.pickle.unpickler import Budget, Unpickler
from formats.containers.pickle.values import Global
from formats.errors import UnsupportedError
from formats.limits import Limits

DEVICE = re.compile(rf"({'|'.join(TORCH_KINDS)})(:\d{{1,3}})?")
# Calls with (CPU array or tensor, dtype, device, …): tensors of devices without storages
DEVICE_TENSORS = frozenset((
    "torch._utils._rebuild_device_tensor_from_numpy",
    "torch._utils._rebuild_device_tensor_from_cpu_tensor",
))  # fmt: skip
KEPT = "meta"  # a storage without elements, which is not moved


@dataclass(slots=True)
class PickledDevices:
    """The devices that a pickle names, counted.

    Attributes:
        storages: Location → how many keys of storages.
        devices: Device → how many ``torch.device`` objects.
        texts: Other strings that look like a device and stay.
    """

    storages: Counter[str] = field(default_factory=Counter)
    devices: Counter[str] = field(default_factory=Counter)
    texts: Counter[str] = field(default_factory=Counter)


class _Pickle(Tracer):
    """A pickle whose devices are replaced by one."""

    def __init__(
        self, source: bytes, limits: Limits, budget: Budget, where: str, device: TorchDevice
    ) -> None:
        super().__init__(source, limits, budget, where)
        self.device = device
        self.found = PickledDevices()
        self.keys: dict[tuple[str, str], None] = {}
        self.own: set[int] = set()  # positions of strings that are devices
        self.persistent = self._retag_storage
        self.given: set[int] = set()  # tuples of arguments seen

    def call(self, function: object, args: object, *, new: bool = False) -> object:
        """Retag a device; refuse what cannot be read."""
        if isinstance(function, Global) and isinstance(args, tuple):
            if function.name == "torch.device":
                self._retag_device(args)
            elif function.name in DEVICE_TENSORS:
                self._retag_device_tensor(args)
            elif function.name.endswith("._load_from_bytes"):
                raise UnsupportedError(
                    "a storage that was pickled by itself, in a program", where=self.where
                )
        return super().call(function, args, new=new)

    def _retag_storage(self, vm: Unpickler, pid: object) -> object:
        del vm
        if isinstance(pid, tuple) and len(pid) > 4 and pid[0] == "storage":
            location = pid[3]
            if not isinstance(location, Text):
                raise self.corrupt("refers to a storage in a way that we do not know")
            self.own.add(location.start)
            key = f"{pid[2]}", f"{location}"
            if key not in self.keys:
                self.keys[key] = None
                self.found.storages[f"{location}"] += 1
            if location != KEPT:
                self.say(location, self.device.location)
        return Global("storage")

    def _retag_device_tensor(self, args: tuple[object, ...]) -> None:
        """Replace the device of a tensor that is stored as a CPU tensor."""
        place = args[2] if len(args) > 2 else None
        if not isinstance(place, Text):
            raise self.corrupt("names a device in a way that we do not know")
        self.found.devices[f"{place}"] += 1
        self.own.add(place.start)
        self.say(place, f"{self.device}")

    def _retag_device(self, args: tuple[object, ...]) -> None:
        kind, index = (*args, None, None)[:2]
        if not isinstance(kind, Text) or len(args) > 2:
            raise self.corrupt("names a device in a way that we do not know")
        if len(args) == 1:
            self.found.devices[f"{kind}"] += 1
            self.own.add(kind.start)
            if kind.partition(":")[0] == KEPT:
                return
            if ":" in kind or self.device.index is None or not _is_python(args, self.bytes):
                self.say(kind, f"{self.device}")
                return
        if not isinstance(args, Made) or (index is not None and not isinstance(index, Number)):
            raise self.corrupt("names a device in a way that we do not know")
        self.own.add(kind.start)
        if len(args) == 2:
            self.found.devices[f"{kind}:{index}"] += 1
            if kind == KEPT:
                return
        self.say(kind, self.device.kind)
        tuples = {b"\x85": b"\x86", b"\x86": b"\x85"}
        opcode = self.bytes[args.start : args.end]
        wanted = self.device.index
        if isinstance(index, Number):
            said = b"" if wanted is None else encode_number(wanted, self.bytes[index.start])
            self.put(index.start, index.end, said)
            if wanted is None:
                self.put(args.start, args.end, tuples.get(opcode, opcode))
        elif wanted is not None:
            self.put(args.start, args.end, encode_number(wanted) + tuples.get(opcode, opcode))

    def other_texts(self) -> Counter[str]:
        """Return strings that look like devices and are not."""
        return Counter(
            f"{text}"
            for pushes in self._pushes.values()
            for text in pushes
            if text.start not in self.own and DEVICE.fullmatch(text)
        )


def _is_python(args: tuple[object, ...], data: bytes) -> bool:
    """Return whether Python wrote a device: it memoizes the tuple; TorchScript does not."""
    return isinstance(args, Made) and data[args.end : args.end + 1] in (b"q", b"r", b"\x94")


def retag_pickle(
    data: bytes, device: TorchDevice, limits: Limits, budget: Budget, where: str
) -> tuple[bytes, PickledDevices]:
    """Return a pickle with its devices replaced by one, and the devices that it named.

    Raises:
        CorruptError: It is not a pickle, or names storages or devices in another way.
        UnsupportedError: It holds storages in a way that is not supported.
        LimitError: It exceeds the limits.
    """
    pickle = _Pickle(data, limits, budget, where, device)
    pickle.load()
    pickle.found.texts = pickle.other_texts()
    return pickle.rewrite(), pickle.found
