"""The state of a pickle decoder: a window over its source, the stack, the memo, what was called.

A global is only ever a name, and calling one either goes through a closed table of constructors
written here and in the readers, or leaves a `Record` of what would have been called.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from formats.containers.pickle.globals import CORE_NAMES, is_suspicious
from formats.containers.pickle.values import Global, Record
from formats.core.storage import Buffer, Span
from formats.errors import CorruptError, LimitError
from formats.limits import Limits

FIRST_WINDOW = 1 << 16  # bytes read at first; most pickles are smaller
WINDOW = 1 << 20  # bytes read at once after that
BLOB = 1 << 16  # longer byte strings stay in their file, as a Span
MAX_NAME = 1000  # characters of a global's dotted name
MAX_GLOBALS = 50_000  # different names in one pickle
MAX_LINE = 1 << 25  # bytes of one line of a text opcode
MAX_CALLS = 1000  # different callables reported


@dataclass(slots=True)
class Budget:
    """Opcodes that one artifact may still spend, over all its pickles."""

    opcodes: int


@dataclass(frozen=True, slots=True)
class Call:
    """A callable outside the table that the pickle calls, and where."""

    name: str
    where: str


Constructor: TypeAlias = Callable[["Unpickler", tuple[object, ...]], object]
Persistent: TypeAlias = Callable[["Unpickler", object], object]


class Unpickler:
    """One run of the machine over one pickle; `decoder.load` runs it."""

    def __init__(
        self,
        source: Span | bytes,
        limits: Limits,
        budget: Budget,
        *,
        constructors: Mapping[str, Constructor],
        persistent: Persistent | None = None,
        where: str = "",
    ) -> None:
        """Prepare to read ``source`` from its start.

        Args:
            source: Where the pickle begins; it may end before ``source`` does.
            limits: Bounds on bytes, integers and opcodes.
            budget: Opcodes left for the whole artifact.
            constructors: Dotted name → what makes the value in place of the real callable.
            persistent: What a persistent id stands for.
            where: What messages call this pickle.
        """
        self.source = Span.whole(Buffer(source, where)) if isinstance(source, bytes) else source
        self.limits = limits
        self.budget = budget
        self.constructors = constructors
        self.persistent = persistent
        self.where = where or self.source.name
        self.calls: dict[str, Call] = {}
        self.judged: set[tuple[str, bool]] = set()
        self.base = 0  # where in source the window begins
        self.fetched = 0  # bytes read, blobs excluded
        self.data = b""
        self.pos = 0
        self.end = 0  # of data
        self.stack: list[object] = []
        self.marks: list[list[object]] = []
        self.memo: dict[int, object] = {}
        self.globals: dict[str, Global] = {}
        self.refill(min(2, self.source.length))

    @property
    def position(self) -> int:
        """Bytes of the source read so far."""
        return self.base + self.pos

    def charge(self, opcodes: int) -> None:
        """Take work that is not one opcode's worth, such as copying a list, off the budget.

        Raises:
            LimitError: Nothing is left.
        """
        self.budget.opcodes -= opcodes
        if self.budget.opcodes < 0:
            raise LimitError(
                f"pickles of more than {self.limits.max_pickle_opcodes} opcodes", where=self.where
            )

    def corrupt(self, found: str) -> CorruptError:
        """Return the error that says what is wrong here."""
        return CorruptError(f"pickle {found}", where=self.where, offset=self.position)

    def refill(self, wanted: int) -> None:
        """Move the window so that ``wanted`` bytes lie in it.

        Raises:
            CorruptError: There are not as many.
            LimitError: The pickle is too long.
        """
        self.base += self.pos
        if wanted > self.source.length - self.base:
            raise CorruptError(
                "pickle ends early",
                where=self.where,
                offset=self.base,
                hint="The file is probably truncated",
            )
        rest = self.data[self.pos :]
        start = self.base + len(rest)
        size = max(wanted - len(rest), WINDOW if self.fetched else FIRST_WINDOW)
        size = min(size, self.source.length - start)
        self._fetch(size)
        self.data = rest + self.source.read(start, size)
        self.pos, self.end = 0, len(self.data)

    def take(self, n: int) -> bytes:
        """Return the next ``n`` bytes."""
        start = self.pos
        end = start + n
        if end > self.end:
            if n > WINDOW:
                return self._take_long(n)
            self.refill(n)
            start, end = 0, n
        self.pos = end
        return self.data[start:end]

    def _take_long(self, n: int) -> bytes:
        """Return very many bytes without a second copy of them in the window."""
        run = self.source.sub(self.position, n)
        self._fetch(n)
        self._skip_window(n)
        return run.read()

    def _skip_window(self, n: int) -> None:
        """Go ``n`` bytes on, to where the window does not reach."""
        self.base, self.data, self.pos, self.end = self.position + n, b"", 0, 0

    def _fetch(self, n: int) -> None:
        self.fetched += n
        if self.fetched > self.limits.max_pickle_bytes + WINDOW:
            raise LimitError(
                f"pickle of more than {self.limits.max_pickle_bytes} bytes", where=self.where
            )

    def byte(self) -> int:
        """Return the next byte."""
        if self.pos >= self.end:
            self.refill(1)
        start = self.pos
        self.pos = start + 1
        return self.data[start]

    def number(self, n: int) -> int:
        """Return the next ``n`` bytes as an unsigned number."""
        return int.from_bytes(self.take(n), "little")

    def blob(self, n: int) -> bytes | Span:
        """Return the next ``n`` bytes; long ones are not read."""
        if n <= BLOB:
            return self.take(n)
        run = self.source.sub(self.position, n)
        if self.pos + n <= self.end:
            self.pos += n
        else:
            self._skip_window(n)
        return run

    def line(self) -> bytes:
        """Return the bytes up to the next newline, which is skipped."""
        end = self.data.find(b"\n", self.pos)
        while end < 0:
            length = len(self.data) - self.pos
            if length > MAX_LINE:
                raise LimitError(f"pickle with a line of {length} bytes", where=self.where)
            left = self.source.length - self.position - length
            self.refill(length + max(1, min(length, left)))
            end = self.data.find(b"\n", self.pos + length)
        start, self.pos = self.pos, end + 1
        return self.data[start:end]

    def since_mark(self) -> list[object]:
        """Return what was pushed since the last MARK, and forget the mark."""
        items = self.stack
        if not self.marks:
            raise self.corrupt("has no mark to go back to")
        self.stack = self.marks.pop()
        return items

    def find_global(self, module: str, name: str) -> Global:
        """Return the global of that name, under Python 3's name for its module."""
        dotted = f"{CORE_NAMES.get(module, module)}.{name}"
        if len(dotted) > MAX_NAME:
            raise self.corrupt(f"names a global with {len(dotted)} characters")
        known = self.globals.get(dotted)
        if known is None:
            if len(self.globals) >= MAX_GLOBALS:
                raise LimitError(f"pickle that names {MAX_GLOBALS} globals", where=self.where)
            known = self.globals[dotted] = Global(dotted)
        return known

    def call(self, function: object, args: object, *, new: bool = False) -> object:
        """Return what calling ``function`` leaves here: a value from the table, or a record."""
        if not isinstance(args, tuple):
            raise self.corrupt("calls something with arguments that are no tuple")
        if isinstance(function, Global):
            make = self.constructors.get(function.name)
            if make is not None:
                return make(self, args)
            self.charge(2)
            if (function.name, new) not in self.judged:
                self.judged.add((function.name, new))
                if is_suspicious(function.name, new=new):
                    self.suspect(function.name)
            return Record(function.name, args)
        base = function.cls if isinstance(function, Record) else type(function).__name__
        name = base if base.endswith("()") else base + "()"
        self.suspect(name)
        return Record(name, args)

    def suspect(self, name: str) -> None:
        """Note that real unpicklers would call something that may do anything."""
        if len(self.calls) < MAX_CALLS:
            self.calls.setdefault(name, Call(name, self.where))

    def decimal(self, text: bytes) -> int:
        """Return a number written in decimal digits."""
        if len(text) > 2 * self.limits.max_integer_bytes:
            raise LimitError(f"integer of {len(text)} digits", where=self.where)
        try:
            return int(text)
        except ValueError:
            raise self.corrupt(f"has {text[:20]!r} for a number") from None
