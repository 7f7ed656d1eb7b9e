"""Edit the devices in TorchScript source: literals, transfers and comparisons.

torch printed the text, so devices have few spellings: ``torch.device("cuda:0")``,
``torch.device("cuda", 1)``, the calls ``torch.cpu(x)`` and ``torch.cuda(x)``, and in torch 1.0
``device=[1, 0]``. If a tensor's device is compared with the device that the program was on, that
becomes the target, so that the same branch is taken. A test of a kind (``x.is_cuda``,
``x.device.type == "cuda"``) stays, as code that tests it handles each kind. A device that is
computed at run time stays as well. Both are reported as warnings.

Spec: https://github.com/pytorch/pytorch/blob/v2.13.0/torch/csrc/jit/serialization/python_print.cpp
(printConstant, printQuotedString), .../jit/runtime/register_prim_ops.cpp (aten::device, aten::cpu)
"""

import re
from collections import Counter
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import NamedTuple

from converter.devices.names import TORCH_KINDS, TorchDevice
from formats.errors import LimitError, UnsupportedError

TEXT = rb'"(?:[^"\\]++|\\.)*+(?:"|\Z)'  # an unterminated string extends to the end
TOKEN = re.compile(
    rb"(?<![\w.])torch\.device\((?:(?P<kind>\"[a-z]+(?::\d+)?\")(?:, (?P<index>\d+))?\))"
    rb"|(?P<text>" + TEXT + rb")"
    rb"|\bdevice=\[(?P<type>\d+), (?P<number>-?\d+)\]"
    rb"|(?P<name>[\w.]*)\((?P<none>\))?"
    rb"|(?P<close>\))",
    re.DOTALL,
)
# Operators that have kernels for some devices only.
ON_CPU = re.compile(rb"ops\.(quantized|mkldnn\w*|prepacked)\.\w+|torch\.(mkldnn_\w+|to_mkldnn)")
ON_GPU = re.compile(rb"torch\.(_?cudnn_\w+|miopen_\w+)")
PINNED = re.compile(rb"\bpin_memory=True|\btorch\.pin_memory\(")
RELEVANT = (
    b"pin_memory=True",
    b"torch.pin_memory(",
    b"ops.quantized.",
    b"mkldnn",
    b"ops.prepacked.",
    b"cudnn_",
    b"miopen_",
    b"device",
    b"torch.cpu(",
    b"torch.cuda(",
    b"ops.prim.is_",
    *(b'"%b' % k.encode() for k in TORCH_KINDS),
)
DEVICE_TEXT = re.compile(rf'"({"|".join(TORCH_KINDS)})(:\d+)?"'.encode())
COMPARES = frozenset({b"torch.eq", b"torch.ne", b"torch.__is__", b"torch.__isnot__"})
TRANSFERS = {b"torch.cpu": "cpu", b"torch.cuda": "cuda"}
LENGTHS = b"torch._pack_padded_sequence"  # takes the lengths on the CPU, on any device
ASKS = frozenset({b"ops.prim.is_cuda", b"ops.prim.is_cpu", b"ops.prim.is_xpu", b"ops.prim.is_mps"})
MAX_TOKENS = 5_000_000  # of one archive, at a microsecond each
MAX_DEPTH = 1000  # calls in calls; torch's own parser takes fewer
STR_OF_DEVICE = b"str(ops.prim.device("
ASSIGNED = re.compile(rb" *(\w+) = ")
OLDEST = b"op_version_set = 0\n"  # source of torch 1.0, where a device is a list of two integers:
# https://github.com/pytorch/pytorch/blob/v1.0.0/tools/jit/gen_jit_dispatch.py (IntList of a Device)
TYPES = {0: "cpu", 1: "cuda"}  # enum DeviceType, c10/core/DeviceType.h


class Edit(NamedTuple):
    """A replacement of bytes; an insertion if both positions are equal."""

    start: int
    end: int
    data: bytes


@dataclass(slots=True)
class CodeDevices:
    """The devices found in source code, counted.

    Attributes:
        tokens: Number of calls, strings and devices read.
        literals: Device → how often it is named.
        kept: Device → how often a comparison with it stays.
        warnings: What could not be decided → how often.
    """

    tokens: int = 0
    literals: Counter[str] = field(default_factory=Counter)
    kept: Counter[str] = field(default_factory=Counter)
    warnings: Counter[str] = field(default_factory=Counter)


class _Call(NamedTuple):
    name: bytes
    start: int
    arguments: int  # position of the first


def edit_code(
    code: bytes, device: TorchDevice, home: AbstractSet[str], found: CodeDevices
) -> list[Edit]:
    """Return the edits of a source text that move it to a device.

    Args:
        code: The text, as torch printed it.
        device: On which it will run.
        home: Devices that the program's tensors were on; comparisons with these are true there.
        found: The devices found are counted here.

    Raises:
        UnsupportedError: The code would take another branch there, or has operators that do not
            run there.
        LimitError: It nests too deeply.
    """
    if not any(word in code for word in RELEVANT):
        return []
    if device.kind != "cpu" and (pinned := len(PINNED.findall(code))):
        found.warnings["pins memory, which only the CPU has"] += pinned
    edits: list[Edit] = []
    calls: list[_Call] = []
    lengths = _find_packed_lengths(code)
    for token in TOKEN.finditer(code):
        found.tokens += 1
        if found.tokens > MAX_TOKENS:
            raise LimitError(f"code of more than {MAX_TOKENS} calls and texts")
        start, end = token.span()
        if token["close"]:
            if calls and (call := calls.pop()).name in TRANSFERS:
                edits += _edit_transfer(call, start, device, found)
        elif token["kind"] is not None:
            edits += _edit_literal(code, token, calls, device, home, found, lengths)
        elif token["text"] is not None:
            edits += _edit_text(code, token, calls, device, home, found)
        elif token["type"] is not None:
            edits += _edit_device_list(token, device, found) if code.startswith(OLDEST) else []
        else:
            if token["name"] in ASKS:
                found.warnings[f"asks {token['name'].decode()}(…)"] += 1
            elif token["name"] == b"torch.device":
                found.warnings["computes a device"] += 1
            bound = ON_CPU if device.kind != "cpu" else ON_GPU
            if bound.fullmatch(token["name"]):
                name = token["name"].decode()
                raise UnsupportedError(f"not supported: {name} on {device}, where it does not run")
            if token["none"] is None:
                calls.append(_Call(token["name"], start, end))
                if len(calls) > MAX_DEPTH:
                    raise LimitError(f"code with calls nested {MAX_DEPTH} deep")
    return sorted(edits)


def apply_edits(code: bytes, edits: list[Edit]) -> bytes:
    """Return a text with edits applied."""
    parts, at = [], 0
    for edit in edits:
        parts += [code[at : edit.start], edit.data]
        at = edit.end
    return b"".join([*parts, code[at:]])


def _edit_literal(
    code: bytes,
    token: re.Match[bytes],
    calls: list[_Call],
    device: TorchDevice,
    home: AbstractSet[str],
    found: CodeDevices,
    lengths: AbstractSet[bytes],
) -> list[Edit]:
    name = token["kind"].decode().strip('"')
    if token["index"] is not None:
        name = f"{name}:{int(token['index'])}"
    if name.partition(":")[0] not in TORCH_KINDS:
        found.warnings[f'names torch.device("{name}")'] += 1
        return []
    wanted = f"{device}"
    names = {call.name for call in calls}
    if calls and calls[-1].name in COMPARES:
        compared = _compared_device(name, device, home, found)
        if compared is None:
            return []
        wanted = compared
    elif name == "cpu" and device.kind != "cpu" and (
        LENGTHS in names or _assigned_name(code, token.start()) in lengths
    ):  # fmt: skip
        found.kept[name] += 1
        found.warnings["keeps lengths of packed sequences on the CPU, where torch wants them"] += 1
        return []
    found.literals[name] += 1
    if name == wanted and token["index"] is None:
        return []
    return [Edit(*token.span(), b'torch.device("%b")' % wanted.encode())]


def _compared_device(
    name: str, device: TorchDevice, home: AbstractSet[str], found: CodeDevices
) -> str | None:
    """Return the device to compare with instead of ``name``; None to leave it."""
    zeroth = f"{device.kind}:0"
    if name in home or name.removesuffix(":0") in home:  # tensors on ``cuda`` give a number
        if device.index is not None or device.kind == "cpu":
            return f"{device}"
        found.warnings[f"compares with {name}: taken to be {zeroth} there"] += 1
        return zeroth
    if ":" not in name:
        found.kept[name] += 1
        found.warnings[f"asks whether something is on {name}"] += 1
        return None
    if home and name == (zeroth if device.index is None else f"{device}"):
        raise UnsupportedError(
            f"not supported: code that asks whether it is on {name}, where it was not and would be"
        )
    found.kept[name] += 1
    found.warnings[f"compares with {name}, where it was not"] += 1
    return None


def _edit_text(
    code: bytes,
    token: re.Match[bytes],
    calls: list[_Call],
    device: TorchDevice,
    home: AbstractSet[str],
    found: CodeDevices,
) -> list[Edit]:
    """Edit a string that the name of a device is compared with."""
    start, end = token.span()
    if not DEVICE_TEXT.fullmatch(token["text"]):
        return []
    name = token["text"].decode().strip('"')
    call = calls[-1] if calls else _Call(b"", 0, 0)
    if call.name not in COMPARES or not code.startswith(STR_OF_DEVICE, call.arguments):
        found.warnings[f'has the text "{name}"'] += 1
        return []
    wanted = _compared_device(name, device, home, found)
    if wanted is None:
        return []
    found.literals[name] += 1
    return [] if wanted == name else [Edit(start, end, b'"%b"' % wanted.encode())]


def _edit_transfer(call: _Call, close: int, device: TorchDevice, found: CodeDevices) -> list[Edit]:
    """Edit ``torch.cpu(x)`` or ``torch.cuda(x)``."""
    found.literals[TRANSFERS[call.name]] += 1
    name = f"torch.{device}".encode()
    if name == call.name:
        return []
    if name in TRANSFERS:
        return [Edit(call.start, call.arguments, name + b"(")]
    to = b', torch.device("%b")' % f"{device}".encode()
    return [Edit(call.start, call.arguments, b"torch.to("), Edit(close, close, to)]


def _edit_device_list(
    token: re.Match[bytes], device: TorchDevice, found: CodeDevices
) -> list[Edit]:
    """Edit a device of torch 1.0: a list of the number of its type and its index, or -1."""
    kind, index = TYPES.get(int(token["type"])), int(token["number"])
    wanted = next((n for n, k in TYPES.items() if k == device.kind), None)
    if kind is None or wanted is None:
        found.warnings[f"names a device as {token[0].decode()}"] += 1
        return []
    found.literals[kind if index < 0 else f"{kind}:{index}"] += 1
    number = -1 if device.index is None else device.index
    return [Edit(*token.span(), b"device=[%d, %d]" % (wanted, number))]


def _find_packed_lengths(code: bytes) -> set[bytes]:
    """Return the names of variables that hold lengths of packed sequences."""
    if LENGTHS not in code:
        return set()
    return set(re.findall(re.escape(LENGTHS) + rb"\([\w.]+, (\w+),", code))


def _assigned_name(code: bytes, at: int) -> bytes:
    """Return the variable that the statement around a position assigns to."""
    start = code.rfind(b"\n", 0, at) + 1
    found = ASSIGNED.match(code, start, at)
    return found[1] if found else b""
