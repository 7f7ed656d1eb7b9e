"""Decode a function's bytecode, of any Python that Keras ran on, into version-neutral steps.

A Lambda layer keeps its function as marshalled code, which does not say which version of Python
wrote it. Each is tried (`formats.python_bytecode.opcodes`), and the right one is that in which
everything fits: the numbers of all instructions, their arguments, where they jump to, the depth of
the stack wherever two ways meet and at the end, the tables of lines and of exceptions. Where
several fit, they have to mean the same.
"""

from formats.errors import CorruptError, LimitError, UnsupportedError
from formats.python_bytecode import calls, flow, marshal, values
from formats.python_bytecode import variables as python_variables
from formats.python_bytecode.instructions import MisfitError, disassemble
from formats.python_bytecode.marshal import CodeRecord
from formats.python_bytecode.opcodes import VERSIONS, Version
from formats.python_bytecode.stack import EMPTY, Stack, Work
from formats.python_bytecode.steps import Code

# Imported for what they say that instructions mean.
_MEANINGS = (calls, flow, values, python_variables)

# From which version on a code object is laid out so.
_LAYOUTS = {
    (2, 7): marshal.PYTHON_2,
    (3, 4): marshal.PYTHON_3,
    (3, 8): marshal.PYTHON_3_8,
    (3, 11): marshal.PYTHON_3_11,
}
_REST, _KEYWORDS, _GENERATOR, _COROUTINE, _ASYNC_GENERATOR = 0x4, 0x8, 0x20, 0x80, 0x200  # flags


def read(data: bytes) -> Code:
    """Return the code that marshalled bytes hold, as `formats.python_bytecode.read_code` says."""
    records = _records(data)
    work = Work()
    same: dict[int, list[Code]] = {}
    unsupported: list[UnsupportedError] = []
    for strictly in (True, False):
        found = []
        for version, record in records.items():
            try:
                found.append(_Reading(version, work, same, strictly=strictly).code(record))
            except MisfitError:
                continue
            except UnsupportedError as e:
                unsupported.append(e)
        if found:
            return _one(found)
        if unsupported:
            raise unsupported[-1]
    name = next(iter(records.values())).name
    raise UnsupportedError(
        f"not supported: the bytecode of function {name!r}, of no known version of Python",
        expected="2.7, or 3.4 to 3.15",
    )


def _records(data: bytes) -> dict[Version, CodeRecord]:
    """Return the code object for each version in whose layout the bytes are one."""
    found: dict[Version, CodeRecord] = {}
    refused: list[CorruptError | LimitError] = []
    after = (4, 0)
    for first, layout in reversed(_LAYOUTS.items()):
        try:
            value = marshal.load(data, layout)
        except (CorruptError, LimitError) as e:
            refused.append(e)
        else:
            if not isinstance(value, CodeRecord):
                raise CorruptError("a function's code is that of no function")
            found |= {version: value for version in VERSIONS if first <= version < after}
        after = first
    if not found:  # the layout that most of it fits
        raise max(refused, key=lambda e: e.offset or 0)
    return dict(sorted(found.items()))


def _one(found: list[Code]) -> Code:
    """Return what all versions agree on."""
    for other in found[1:]:
        if other != found[0]:
            two = " and ".join("{}.{}".format(*one.version) for one in (found[0], other))
            raise UnsupportedError(
                f"not supported: the bytecode of function {other.name!r} is that of Python {two},"
                " and means different things in them"
            )
    return found[0]


class _Reading:
    """All functions of one artifact's code, as of one version."""

    def __init__(
        self, version: Version, work: Work, same: dict[int, list[Code]], *, strictly: bool
    ) -> None:
        self.version = version
        self.work = work
        self.same = same  # what each record is in the versions before
        self.strictly = strictly
        self.done: dict[int, Code] = {}  # of a record's identity: it may be referred to again

    def code(self, record: CodeRecord) -> Code:
        """Return a record's code: one object wherever it is the same, so that that is seen fast."""
        known = self.done.get(id(record))
        if known is None:
            known = self._code(record)
            others = self.same.setdefault(id(record), [])
            known = next((other for other in others if other == known), known)
            others.append(known)
            self.done[id(record)] = known
        return known

    def _code(self, record: CodeRecord) -> Code:
        if record.flags & (_COROUTINE | _ASYNC_GENERATOR):
            raise UnsupportedError(f"not supported: await in a Python function ({record.name})")
        yields = bool(record.flags & _GENERATOR)
        self.work.charge(len(record.code) // 2 + len(record.lines))
        disassembled = disassemble(record, self.version, strictly=self.strictly)
        flow.refuse_handlers(disassembled, record.name)
        stack = Stack(record, self.version, disassembled, self.code, self.work)
        if yields and self.version == (3, 10):
            stack.push(EMPTY)  # what is sent to it first
        positional, names = record.argcount, record.locals
        keyword_only = positional + record.keyword_only
        rest = keyword_only + bool(record.flags & _REST)
        keywords = rest + bool(record.flags & _KEYWORDS)
        if not 0 <= record.positional_only <= positional <= keyword_only <= keywords <= len(names):
            raise MisfitError("has other parameters than variables")
        return Code(
            name=record.name,
            version=self.version,
            file=record.file,
            positional=names[:positional],
            positional_only=record.positional_only,
            keyword_only=names[positional:keyword_only],
            rest=names[keyword_only] if rest > keyword_only else None,
            keywords=names[rest] if keywords > rest else None,
            free=record.free,
            yields=yields,
            steps=stack.steps(),
        )
