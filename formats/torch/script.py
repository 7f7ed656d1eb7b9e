"""TorchScript archives: the zip of data.pkl and code/, and the model.json of torch 1.0 to 1.2.

The program stays what it is, source text inside the archive: `Topology.content` names its members.
Objects become names as attributes lead to them; what `state_dict()` would not list (attributes,
constants, packed parameters of quantised layers) is there as well.

Spec: https://github.com/pytorch/pytorch/blob/v2.13.0/torch/csrc/jit/docs/serialization.md
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from formats.artifact import Artifact
from formats.containers.pickle.unpickler import Unpickler
from formats.containers.zip.archive import ZipArchive
from formats.core.bundle import JSON, Bundle, Signature, TensorSpec, Topology
from formats.errors import CorruptError, UnsupportedError
from formats.limits import MIB
from formats.torch.bundle import asset_members, finish
from formats.torch.containers import Session
from formats.torch.tensor_values import StorageRef, TensorValue, storage_type
from formats.torch.walk import Tree
from formats.torch.zip_storages import ZipStorages, zip_records

PACKED = "code/__torch__/torch/classes/quantized.py"  # is there where a layer is packed
MOST_NUMBERS = 128  # bytes of what says how a layer is packed
MAX_CODE_BYTES = 32 * MIB  # source text looked at for classes and devices
FLATBUFFER = b"PTMF"  # at byte 4

CLASS = re.compile(r"^class (\w+)\((\w+)\):", re.MULTILINE)
LISTED = re.compile(r"^  __(parameters|buffers)__ = \[(.*?)\]", re.MULTILINE)
METHOD = re.compile(r"^(?:  )?def (\w+)\(self\b", re.MULTILINE)
DEVICE = re.compile(r'torch\.device\("([^"]{1,40})"\)')


def sniff(artifact: Artifact) -> str | None:
    """Return the evidence that this is a TorchScript archive."""
    if artifact.head[4:8] == FLATBUFFER:
        return "a flatbuffer of PyTorch mobile"
    archive = artifact.zip
    prefix = None if archive is None else prefix_of(archive)
    if archive is None or prefix is None:
        return None
    if f"{prefix}model.json" in archive:
        return f"a zip archive with {prefix}model.json"
    return f"a zip archive with {prefix}data.pkl and TorchScript code"


def prefix_of(archive: ZipArchive) -> str | None:
    """Return the folder inside the archive that is the model, with its slash."""
    for name in archive.members:
        folder, _, last = name.rpartition("/")
        prefix = folder + "/" if folder else ""
        if "__MACOSX" in folder or ".data/ts_code" in folder:  # a torch.package has its own reader
            continue
        if last == "data.pkl":
            if f"{prefix}constants.pkl" in archive:
                return prefix
            code = f"{prefix}code/"
            if any(n.startswith(code) for n in archive.members):
                return prefix
        if last == "model.json" and f"{prefix}version" in archive:
            return prefix
    return None


@dataclass(slots=True)
class Code:
    """What the source text of an archive says.

    Attributes:
        slots: Class → names of its parameters and buffers, where the text lists them.
        methods: Class → its methods.
        bodies: Class → where its text begins.
        devices: Device that the text names → how often.
    """

    slots: dict[str, frozenset[str]] = field(default_factory=dict)
    methods: dict[str, list[str]] = field(default_factory=dict)
    bodies: dict[str, str] = field(default_factory=dict)
    devices: dict[str, int] = field(default_factory=dict)


def read(artifact: Artifact) -> Bundle:
    """Read a TorchScript archive. Its code is not run.

    Raises:
        CorruptError: It is damaged.
        LimitError: It asks for more than the limits grant.
        UnsupportedError: It is a flatbuffer, or needs objects from outside.
    """
    if artifact.head[4:8] == FLATBUFFER:
        raise UnsupportedError(
            "is a PyTorch mobile model in the flatbuffer format",
            where=artifact.path,
            hint="Save it again with _use_flatbuffer=False",
        )
    archive = artifact.zip
    prefix = None if archive is None else prefix_of(archive)
    if archive is None or prefix is None:
        raise CorruptError("is no TorchScript archive", where=artifact.path)
    session = Session.begin(artifact.limits)
    code = _read_code(archive, prefix)
    tree = Tree(artifact.limits, classify=False, slots=code.slots)
    recorded = zip_records(archive, prefix)
    if f"{prefix}model.json" in archive:
        return _read_old(archive, prefix, session, tree, code, recorded)
    order = recorded.get("byteorder", "little")
    where = artifact.name
    root = ""
    for member, folder in (("data.pkl", "data"), ("constants.pkl", "constants")):
        name = prefix + member
        if name not in archive:
            continue
        storages = ZipStorages(
            archive, f"{prefix}{folder}/{{}}", where, "big" if order == "big" else "little"
        )
        vm = session.unpickler(archive[name].span(), f"{where}!{name}", storages)
        value = session.load(vm)
        if member == "data.pkl":
            root = getattr(value, "cls", "")
            tree.add(value)
        elif isinstance(value, tuple):  # the code calls them CONSTANTS.c0, …
            for i, constant in enumerate(value):
                tree.add(constant, f"CONSTANTS.c{i}", f"constants.pkl/{i}")
    topology = _topology(archive, prefix, code, root)
    return finish(
        tree, session, format="torchscript", variant=_variant(archive, prefix),
        recorded=recorded, topology=topology, signatures=_signatures(code, root),
        assets=asset_members(archive, f"{prefix}extra/", session),
    )  # fmt: skip


def _variant(archive: ZipArchive, prefix: str) -> str:
    if f"{prefix}bytecode.pkl" in archive:
        return "zip archive with code and mobile bytecode (torch 1.4 and later)"
    return "zip archive with code (torch 1.3 and later)"


def _read_old(
    archive: ZipArchive,
    prefix: str,
    session: Session,
    tree: Tree,
    code: Code,
    recorded: dict[str, str],
) -> Bundle:
    from formats.torch.script_model_json import read_model_json  # old, and seldom needed

    said = read_model_json(archive, prefix, session, tree)
    recorded |= said.recorded
    topology = _topology(archive, prefix, code, said.root)
    return finish(
        tree, session, format="torchscript", variant="zip with model.json (torch 1.0 to 1.2)",
        recorded=recorded, topology=topology, signatures=_signatures(code, said.root),
        assets=asset_members(archive, f"{prefix}extra/", session),
    )  # fmt: skip


def list_traced_inputs(artifact: Artifact) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Return dtypes and sizes of the tensors that ``forward`` was traced with.

    They are recorded since torch 2.0, without their elements; nothing where they are not, or where
    an input was no tensor.

    Raises:
        CorruptError: The archive is damaged.
    """
    archive = artifact.zip
    prefix = None if archive is None else prefix_of(archive)
    name = f"{prefix}traced_inputs.pkl"
    if archive is None or prefix is None or name not in archive:
        return ()
    session = Session.begin(artifact.limits)
    vm = session.unpickler(archive[name].span(), f"{artifact.name}!{name}", _without_elements)
    value = session.load(vm)
    given = value.get("forward") if isinstance(value, dict) else None
    found = []
    for tensor in given if isinstance(given, (list, tuple)) else ():
        if not isinstance(tensor, TensorValue) or tensor.type is None:
            return ()
        found.append((tensor.type.name, tensor.shape))
    return tuple(found)


def _without_elements(vm: Unpickler, pid: object) -> object:
    if not isinstance(pid, tuple) or len(pid) < 5 or (element := storage_type(pid[1])) is None:
        raise vm.corrupt("refers to a storage in a way that we do not know")
    return StorageRef(str(pid[2]), element, str(pid[3]), 0)


def _read_code(archive: ZipArchive, prefix: str) -> Code:
    code, left = Code(), MAX_CODE_BYTES
    start = f"{prefix}code/"
    for name, member in archive.members.items():
        if not name.startswith(start) or not name.endswith(".py") or member.size > left:
            continue
        left -= member.size
        text = member.read(MAX_CODE_BYTES).decode("utf-8", "replace")
        for device in DEVICE.findall(text):
            code.devices[device] = code.devices.get(device, 0) + 1
        module = name[len(start) : -3].replace("/", ".")
        for cls, body in _classes(text):
            full = f"{module}.{cls}" if cls else module
            code.bodies[full] = body
            code.methods[full] = METHOD.findall(body)
            listed = dict(LISTED.findall(body))
            if "buffers" in listed:  # absent before torch 1.5
                names = re.findall(r'"([^"]*)"', " ".join(listed.values()))
                code.slots[full] = frozenset(names)
    return code


def _classes(text: str) -> Iterator[tuple[str, str]]:
    """Yield each class of a source file and its text; "" where the file has methods alone."""
    starts = list(CLASS.finditer(text))
    if not starts:
        yield "", text
        return
    ends = [c.start() for c in starts[1:]] + [len(text)]
    for here, end in zip(starts, ends, strict=True):
        if here.group(2) == "Module":
            yield here.group(1), text[here.start() : end]


def _topology(archive: ZipArchive, prefix: str, code: Code, root: str) -> Topology:
    skipped = (f"{prefix}data/", f"{prefix}constants/", f"{prefix}tensors/", f"{prefix}extra/")
    content = {
        name.removeprefix(prefix): member.span()
        for name, member in archive.members.items()
        if not name.startswith(skipped)
    }
    if f"{prefix}{PACKED}" in archive:  # some numbers of packed layers are kept as tensors
        content |= {
            name.removeprefix(prefix): member.span()
            for name, member in archive.members.items()
            if name.startswith(f"{prefix}data/") and member.size <= MOST_NUMBERS
        }
    summary: dict[str, JSON] = {
        "class": root,
        "classes": len(code.bodies),
        "methods": [*code.methods.get(root, [])[:1000]],
    }
    if code.devices:
        summary["devices_in_code"] = dict(code.devices)
    return Topology("torchscript", summary, content)


def _signatures(code: Code, root: str) -> list[Signature]:
    """Return the names and types that ``forward`` declares; shapes and dtypes are not recorded."""
    body = code.bodies.get(root, "")
    at = body.find("def forward(self")
    if at < 0:
        return []
    parts, end = _arguments(body, at + len("def forward("))
    if end < 0:
        return []
    inputs = []
    for part in parts[1:]:
        name, _, kind = part.partition(":")
        inputs.append(TensorSpec(name.strip(), kind.partition("=")[0].strip(), None))
    result = re.match(r"\s*->\s*([^\n]{1,2000}):\n", body[end:])
    outputs = [TensorSpec("output", result.group(1), None)] if result else []
    return [Signature("forward", tuple(inputs), tuple(outputs))]


def _arguments(body: str, at: int) -> tuple[list[str], int]:
    """Split an argument list at its commas; return the parts and where it ends."""
    parts, depth, start = [], 0, at
    for i in range(at, min(len(body), at + 20_000)):
        c = body[i]
        if c in "([{":
            depth += 1
        elif c in ")]}":
            if depth == 0:
                parts.append(body[start:i])
                return [p.strip() for p in parts if p.strip()], i + 1
            depth -= 1
        elif c == "," and depth == 0:
            parts.append(body[start:i])
            start = i + 1
    return parts, -1
