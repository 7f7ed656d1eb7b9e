"""Replace devices in the JSON of ``torch.export``: of values, tables of weights, and arguments.

A device is ``{"type": "cuda", "index": 0}`` under the key ``device`` (of a tensor's metadata) or
``as_device`` (an argument); some operators take a string. The document is edited as text, so that
order, spacing and unknown fields stay as they are. The edited document is then parsed, and must
equal the former one with its devices replaced.

Spec: https://github.com/pytorch/pytorch/blob/v2.13.0/torch/_export/serde/schema.py
"""

import json
import re
from collections import Counter
from dataclasses import dataclass, field

from converter.devices.names import TORCH_KINDS, TorchDevice
from formats.containers import jsontext
from formats.core.bundle import JSON
from formats.errors import UnsupportedError

# A quote inside a string is escaped, so no match begins inside one.
DEVICE = re.compile(
    rb'(?<!\\)"(?P<key>device|as_device)"\s*:\s*(?P<value>\{(?:[^{}"]++|"(?:[^"\\]++|\\.)*+")*+\})'
)
TYPE = re.compile(rb'(?<!\\)"type"\s*:\s*"(?P<type>[^"\\]*)"')
INDEX = re.compile(rb'(?<!\\)"index"\s*:\s*(?P<index>null|\d+)')
NEXT_INDEX = re.compile(rb',\s*"index"\s*:\s*(?:null|\d+)')
NULL = re.compile(rb'(?<!\\)":\s*null')
NAMES = "|".join(TORCH_KINDS).encode()
ARGUMENT = re.compile(
    rb'(?<!\\)"name"\s*:\s*"device(?:_type)?"\s*,\s*"arg"\s*:\s*\{\s*"as_string"\s*:\s*'
    rb'"(?P<text>(?:' + NAMES + rb')(?::\d+)?)"'
)
AUTOCAST = re.compile(
    rb'(?<!\\)"target"\s*:\s*"torch\.ops\.higher_order\.wrap_with_autocast"\s*,\s*"inputs"\s*:\s*'
    rb'\[\s*\{\s*"name"\s*:\s*""\s*,\s*"arg"\s*:\s*\{\s*"as_string"\s*:\s*"(?P<text>'
    + NAMES
    + rb')"\s*\}[^{}]*\}\s*,\s*\{\s*"name"\s*:\s*""\s*,\s*"arg"\s*:\s*\{\s*"(?P<dtype>as_\w+)"'
)
TEXT = re.compile(rf"({'|'.join(TORCH_KINDS)})(:\d{{1,3}})?")
# Operators with kernels for some devices only; packing takes its lengths from the CPU.
ON_CPU = re.compile(r"torch\.ops\.(quantized|mkldnn\w*|prepacked|aten\._pack_padded_sequence)\b.*")
ON_GPU = re.compile(r"torch\.ops\.aten\.(_?cudnn_|miopen_)\w+.*")


@dataclass(slots=True)
class GraphDevices:
    """The devices that the JSON of an archive names, counted.

    Attributes:
        values: Device → how many values and rows of weights.
        arguments: Device → how many arguments of nodes.
        warnings: What could not be decided → how often.
    """

    values: Counter[str] = field(default_factory=Counter)
    arguments: Counter[str] = field(default_factory=Counter)
    warnings: Counter[str] = field(default_factory=Counter)


def move_graph_json(
    data: bytes, device: TorchDevice, found: GraphDevices, *, is_old: bool, limit: int, where: str
) -> bytes:
    """Return a document with all its devices replaced by one.

    Args:
        data: JSON, as torch wrote it.
        device: The device.
        found: The devices found are counted here.
        is_old: Whether it has the layout of torch 2.1 to 2.6.
        limit: Largest document, in bytes.
        where: Its name in messages.

    Raises:
        CorruptError: It is not JSON.
        UnsupportedError: It names devices in another way, or the graph cannot run there.
    """
    before = jsontext.parse(data, where=where, limit=limit)
    is_sparse = is_old and NULL.search(data) is None  # the first versions left out None
    new = DEVICE.sub(lambda match: _replace_device(match, device, found, is_sparse), data)
    new = ARGUMENT.sub(lambda match: _replace_text(match, device, found), new)
    new = AUTOCAST.sub(lambda match: _replace_autocast(match, device, found), new)
    after = before if new == data else jsontext.parse(new, where=where, limit=2 * limit)
    _check(before, after, device, found, where)
    return new


def _replace_device(
    match: re.Match[bytes], device: TorchDevice, found: GraphDevices, is_sparse: bool
) -> bytes:
    """Return the object of a device with type and index replaced."""
    value = json.loads(match["value"])
    kind, index = value.get("type"), value.get("index")
    if not isinstance(kind, str) or kind == "meta":
        return match[0]
    counts = found.values if match["key"] == b"device" else found.arguments
    counts[kind if index is None else f"{kind}:{index}"] += 1
    wanted = b"null" if device.index is None else b"%d" % device.index
    text = _replace_group(match["value"], TYPE, "type", device.kind.encode())
    if is_sparse and device.index is None:
        text = NEXT_INDEX.sub(b"", text)
    elif INDEX.search(text):
        text = _replace_group(text, INDEX, "index", wanted)
    elif device.index is not None:
        text = text[:-1].rstrip() + b', "index": ' + wanted + b"}"
    return match[0][: match.start("value") - match.start()] + text


def _replace_text(match: re.Match[bytes], device: TorchDevice, found: GraphDevices) -> bytes:
    found.arguments[match["text"].decode()] += 1
    wanted = str(device) if b":" in match["text"] or device.kind == "cpu" else device.kind
    start, end = (n - match.start() for n in match.span("text"))
    return match[0][:start] + wanted.encode() + match[0][end:]


def _replace_autocast(match: re.Match[bytes], device: TorchDevice, found: GraphDevices) -> bytes:
    """Return an autocast region for another kind of device."""
    kind = match["text"].decode()
    found.arguments[kind] += 1
    if kind == device.kind:
        return match[0]
    if match["dtype"] == b"as_none":
        raise UnsupportedError(
            f"not supported: autocast of {kind} without a dtype, which {device.kind} has another of"
        )
    found.warnings[
        f"autocast of {kind} becomes one of {device.kind}: its operators may differ"
    ] += 1
    start, end = (n - match.start() for n in match.span("text"))
    return match[0][:start] + device.kind.encode() + match[0][end:]


def _replace_group(text: bytes, pattern: re.Pattern[bytes], group: str, wanted: bytes) -> bytes:
    match = pattern.search(text)
    if match is None:
        return text
    return text[: match.start(group)] + wanted + text[match.end(group) :]


def _check(before: JSON, after: JSON, device: TorchDevice, found: GraphDevices, where: str) -> None:
    """Compare an edited document with the former one, and check the operators of its nodes.

    Raises:
        UnsupportedError: Something other than a device changed, or the graph cannot run there.
    """
    stack: list[tuple[JSON, JSON, str]] = [(before, after, "")]
    while stack:
        old, new, key = stack.pop()
        if isinstance(old, dict):
            is_device = key in ("device", "as_device") and isinstance(old.get("type"), str)
            if is_device and isinstance(new, dict) and old.get("type") != "meta":
                _check_device(old, new, device, where)
                continue
            if not isinstance(new, dict) or old.keys() != new.keys():
                raise UnsupportedError("names devices in a way that we do not know", where=where)
            _check_target(old, device, found)
            stack += [(value, new[name], name) for name, value in old.items()]
        elif isinstance(old, list):
            if not isinstance(new, list) or len(old) != len(new):
                raise UnsupportedError("names devices in a way that we do not know", where=where)
            stack += [(a, b, "") for a, b in zip(old, new, strict=True)]
        elif old != new and not (key == "as_string" and isinstance(new, str) and TEXT.match(new)):
            raise UnsupportedError("names devices in a way that we do not know", where=where)
        elif key == "as_string" and old == new and _is_other(old, device):
            found.warnings[f"a node has the text {old!r}: left as it is"] += 1


def _check_device(
    old: dict[str, JSON], new: dict[str, JSON], device: TorchDevice, where: str
) -> None:
    rest = [{k: v for k, v in d.items() if k not in ("type", "index")} for d in (old, new)]
    said = new.get("type"), new.get("index")
    if rest[0] != rest[1] or said != (device.kind, device.index):
        raise UnsupportedError("names devices in a way that we do not know", where=where)


def _is_other(text: JSON, device: TorchDevice) -> bool:
    """Return whether a string names another device."""
    is_device = isinstance(text, str) and TEXT.fullmatch(text)
    return bool(is_device) and text not in (str(device), device.kind)


def _check_target(node: dict[str, JSON], device: TorchDevice, found: GraphDevices) -> None:
    """Refuse a node whose operator does not run on the device; warn of custom operators."""
    target = node.get("target")
    if not isinstance(target, str) or "inputs" not in node:
        return
    bound = ON_CPU if device.kind != "cpu" else ON_GPU
    if bound.fullmatch(target):
        raise UnsupportedError(f"not supported: {target} on {device}, where it does not run")
    if target.startswith("torch.ops.") and target.count(".") > 2:
        space = target.split(".")[2]
        if space not in ("aten", "prim", "prims", "higher_order", "profiler"):
            found.warnings[
                f"calls {space}'s own operators: they must be there on {device.kind}"
            ] += 1
