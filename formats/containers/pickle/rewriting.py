"""Replace strings and integers in a pickle; every other byte stays.

`Tracer` runs the decoder and remembers of each text, small number and tuple which bytes put it on
the stack. Who knows what a value means asks for another in its place; texts that the memo shares
with something else are left to that, and only the one place gets its own. Frames keep their
lengths right. Nothing is run: no table of constructors, every call is a record.

Opcodes: https://github.com/python/cpython/blob/v3.13.0/Lib/pickletools.py
"""

import struct
from bisect import bisect_right

from formats.containers.pickle.decoder import HANDLERS
from formats.containers.pickle.unpickler import Budget, Unpickler
from formats.errors import UnsupportedError
from formats.limits import Limits

# Opcodes that push a text, and one line or a length in front of it.
TEXTS = frozenset(b"X\x8c\x8dVSUT")
NUMBERS = frozenset(b"KMJI")
GETS = frozenset(b"hjg2")  # 2 is DUP
PUTS = frozenset(b"qrp\x94")
TUPLES = frozenset(b"\x85\x86\x87t")
FRAME, STOP = 0x95, 0x2E


class Text(str):
    """A text on the stack, and which bytes pushed it.

    Attributes:
        start: First byte of the opcode that pushed it.
        end: Behind the last one.
        origin: The text that a GET pushed again; None for one that was made here.
    """

    __slots__ = ("end", "origin", "start")

    start: int
    end: int
    origin: "Text | None"


class Number(int):
    """A small whole number on the stack, and which bytes pushed it."""

    start: int
    end: int


class Made(tuple[object, ...]):  # noqa: SLOT001 - CPython allows a tuple none
    """A tuple on the stack, and which bytes made it of what was above."""

    start: int
    end: int


class Tracer(Unpickler):
    """One run over one pickle that shall be changed."""

    def __init__(self, source: bytes, limits: Limits, budget: Budget, where: str) -> None:
        """Prepare to read ``source``."""
        super().__init__(source, limits, budget, constructors={}, where=where)
        self.bytes = source
        self._pushes: dict[int, list[Text]] = {}  # start of a text -> it, and what GETs pushed
        self._puts: dict[int, int] = {}  # start of a text -> end of the PUT behind it
        self._frames: list[tuple[int, int]] = []  # where a frame's content begins, and its length
        self._wanted: dict[int, tuple[Text, str]] = {}  # start of a push -> the text wanted there
        self._edits: dict[int, tuple[int, bytes]] = {}  # start -> end, and what is there then

    def load(self) -> object:
        """Return the value of the pickle, its texts, numbers and tuples knowing their places.

        Raises:
            CorruptError: It is no pickle, ends early, or uses what it never made.
            LimitError: It asks for more than the limits grant.
            UnsupportedError: It needs objects that live outside it.
        """
        try:
            while True:
                if self.pos >= self.end:
                    self.refill(1)
                start, op = self.position, self.data[self.pos]
                self.pos += 1
                self.charge(1)
                if op == STOP:
                    return self.stack.pop()
                HANDLERS[op](self)
                self._note(start, op)
        except IndexError:
            raise self.corrupt("takes more from its stack than it put there") from None

    def _note(self, start: int, op: int) -> None:
        if op in TEXTS:
            value = self.stack[-1]
            if isinstance(value, str):
                self.stack[-1] = self._push(value, start, None)
        elif op in GETS:
            value = self.stack[-1]
            if isinstance(value, Text):
                self.stack[-1] = self._push(value, start, value.origin or value)
        elif op in PUTS:
            value = self.stack[-1]
            if isinstance(value, Text) and value.end == start and value.origin is None:
                self._puts[value.start] = self.position
        elif op in NUMBERS:
            value = self.stack[-1]
            if type(value) is int:
                number = self.stack[-1] = Number(value)
                number.start, number.end = start, self.position
        elif op in TUPLES:
            value = self.stack[-1]
            if isinstance(value, tuple):
                made = self.stack[-1] = Made(value)
                made.start, made.end = start, self.position
        elif op == FRAME:
            length = int.from_bytes(self.bytes[start + 1 : start + 9], "little")
            self._frames.append((self.position, length))

    def _push(self, value: str, start: int, origin: Text | None) -> Text:
        text = Text(value)
        text.start, text.end, text.origin = start, self.position, origin
        self._pushes.setdefault(start if origin is None else origin.start, []).append(text)
        return text

    def say(self, text: Text, wanted: str) -> None:
        """Replace this text by another one."""
        self._wanted[text.start] = text, wanted

    def put(self, start: int, end: int, data: bytes) -> None:
        """Replace the bytes of an opcode; insert bytes where start and end are equal."""
        self._edits[start] = end, data

    def rewrite(self) -> bytes:
        """Return the pickle with all that was asked for.

        Raises:
            UnsupportedError: Two things were asked for at one place.
        """
        edits = dict(self._edits)

        def edit(start: int, end: int, data: bytes) -> None:
            if start in edits:
                raise UnsupportedError("a pickle that uses one value twice", where=self.where)
            edits[start] = end, data

        by_origin: dict[int, list[tuple[Text, str]]] = {}
        for text, wanted in self._wanted.values():
            made = text.origin or text
            by_origin.setdefault(made.start, []).append((text, wanted))
        for start, uses in by_origin.items():
            made = uses[0][0].origin or uses[0][0]
            opcode = self.bytes[start]
            texts = {wanted for _, wanted in uses}
            if len(uses) == len(self._pushes[start]) and len(texts) == 1:
                if (wanted := texts.pop()) != made:
                    edit(start, made.end, spell(wanted, opcode))
                continue
            for text, wanted in uses:
                if wanted == text:
                    continue
                if text.origin is not None:
                    edit(text.start, text.end, spell(wanted, opcode))
                else:  # what others recall stays in the memo
                    at = self._puts.get(start, made.end)
                    edit(at, at, b"0" + spell(wanted, opcode))
        if not edits:
            return self.bytes
        return self._apply(edits)

    def _apply(self, edits: dict[int, tuple[int, bytes]]) -> bytes:
        starts = [start for start, _ in self._frames]
        grown = [0] * len(starts)
        for start, (end, data) in edits.items():
            if (i := bisect_right(starts, start) - 1) >= 0:
                frame, length = self._frames[i]
                grown[i] += len(data) - (end - start) if start < frame + length else 0
        for (start, length), more in zip(self._frames, grown, strict=True):
            if more:
                edits[start - 8] = start, struct.pack("<Q", length + more)
        parts, at = [], 0
        for start in sorted(edits):
            end, data = edits[start]
            parts += [self.bytes[at:start], data]
            at = end
        return b"".join([*parts, self.bytes[at:]])


def spell(text: str, opcode: int) -> bytes:
    """Return an ASCII text as an opcode of the kind that ``opcode`` is."""
    data, op = text.encode("ascii"), bytes([opcode])
    if op == b"V":
        return b"V" + data + b"\n"
    if op == b"S":
        return b"S'" + data + b"'\n"
    width = {b"X": 4, b"\x8c": 1, b"\x8d": 8, b"U": 1, b"T": 4}[op]
    return op + len(data).to_bytes(width, "little") + data


def encode_number(value: int, opcode: int | None = None) -> bytes:
    """Return a whole number of 31 bits as the shortest opcode, or as text where that was one."""
    if opcode == ord("I"):
        return b"I%d\n" % value
    if 0 <= value < 1 << 8:
        return b"K" + bytes([value])
    if 0 <= value < 1 << 16:
        return b"M" + value.to_bytes(2, "little")
    return b"J" + struct.pack("<i", value)
