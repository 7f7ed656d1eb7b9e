"""Devices in a pickle of torch's: locations of storages, and ``torch.device`` objects.

A storage is a persistent id ``("storage", class, key, location, elements)``; a device is a call of
``torch.device`` with one text (TorchScript, and Python for ``cpu``) or with a text and a number
(Python). Only those are changed; a text that merely looks like a device is somebody's own.

Spec: https://github.com/pytorch/pytorch/blob/v2.13.0/torch/csrc/jit/serialization/pickler.cpp
(pushStorageOfTensor, pushDevice), https://github.com/pytorch/pytorch/blob/v2.13.0/torch/csrc/Device.cpp
(THPDevice_reduce)
"""

import re
from collections import Counter
from dataclasses import dataclass, field

from converter.devices.names import TORCH_KINDS, TorchDevice
from formats.containers.pickle.decoder import Budget, Unpickler
from formats.containers.pickle.rewriting import Made, Number, Text, Tracer, numbered
from formats.containers.pickle.values import Global
from formats.errors import UnsupportedError
from formats.limits import Limits

DEVICE = re.compile(rf"({'|'.join(TORCH_KINDS)})(:\d{{1,3}})?")
# (array or tensor of the CPU, dtype, device, …): devices without storages are saved so
BESIDE = frozenset((
    "torch._utils._rebuild_device_tensor_from_numpy",
    "torch._utils._rebuild_device_tensor_from_cpu_tensor",
))  # fmt: skip
KEPT = "meta"  # a storage without elements: there is nothing to be moved


@dataclass(slots=True)
class Found:
    """What a pickle names, before it was changed.

    Attributes:
        storages: Location → how many keys of storages.
        devices: Device → how many ``torch.device`` objects.
        texts: Texts of somebody's own that look like a device, and stay.
    """

    storages: Counter[str] = field(default_factory=Counter)
    devices: Counter[str] = field(default_factory=Counter)
    texts: Counter[str] = field(default_factory=Counter)


class _Pickle(Tracer):
    """A pickle whose devices become another one."""

    def __init__(
        self, source: bytes, limits: Limits, budget: Budget, where: str, device: TorchDevice
    ) -> None:
        super().__init__(source, limits, budget, where)
        self.device = device
        self.found = Found()
        self.keys: dict[tuple[str, str], None] = {}
        self.own: set[int] = set()  # where texts that are devices were pushed
        self.persistent = self._storage
        self.given: set[int] = set()  # tuples of arguments that were seen

    def call(self, function: object, args: object, *, new: bool = False) -> object:
        """Note a device, and what cannot be looked into."""
        if isinstance(function, Global) and isinstance(args, tuple):
            if function.name == "torch.device":
                self._device(args)
            elif function.name in BESIDE:
                self._beside(args)
            elif function.name.endswith("._load_from_bytes"):
                raise UnsupportedError(
                    "a storage that was pickled by itself, in a program", where=self.where
                )
        return super().call(function, args, new=new)

    def _storage(self, vm: Unpickler, pid: object) -> object:
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

    def _beside(self, args: tuple[object, ...]) -> None:
        """Change where a tensor goes that is stored as one of the CPU."""
        place = args[2] if len(args) > 2 else None
        if not isinstance(place, Text):
            raise self.corrupt("names a device in a way that we do not know")
        self.found.devices[f"{place}"] += 1
        self.own.add(place.start)
        self.say(place, f"{self.device}")

    def _device(self, args: tuple[object, ...]) -> None:
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
            said = b"" if wanted is None else numbered(wanted, self.bytes[index.start])
            self.put(index.start, index.end, said)
            if wanted is None:
                self.put(args.start, args.end, tuples.get(opcode, opcode))
        elif wanted is not None:
            self.put(args.start, args.end, numbered(wanted) + tuples.get(opcode, opcode))

    def own_texts(self) -> Counter[str]:
        """Return texts that look like devices and were used otherwise."""
        return Counter(
            f"{text}"
            for pushes in self._pushes.values()
            for text in pushes
            if text.start not in self.own and DEVICE.fullmatch(text)
        )


def _is_python(args: tuple[object, ...], data: bytes) -> bool:
    """Tell whether Python wrote a device: it memoises the tuple, TorchScript's pickler does not."""
    return isinstance(args, Made) and data[args.end : args.end + 1] in (b"q", b"r", b"\x94")


def retagged(
    data: bytes, device: TorchDevice, limits: Limits, budget: Budget, where: str
) -> tuple[bytes, Found]:
    """Return a pickle that names one device, and what it named before.

    Raises:
        CorruptError: It is no pickle, or names storages or devices in another way.
        UnsupportedError: It holds storages in a way that is not followed.
        LimitError: It asks for more than the limits grant.
    """
    pickle = _Pickle(data, limits, budget, where, device)
    pickle.load()
    pickle.found.texts = pickle.own_texts()
    return pickle.rewritten(), pickle.found
