"""Move a TorchScript archive to a device, without torch and without the device.

This changes the locations of storages and the devices in the archive's pickles (attributes,
constants, mobile bytecode, traced inputs), the literals in its code, and in archives of torch 1.0
to 1.2 the table of tensors. Source maps (``.debug_pkl``) follow the code that they describe.

Spec: https://github.com/pytorch/pytorch/blob/v2.13.0/torch/csrc/jit/docs/serialization.md
"""

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator

from converter.devices.names import TorchDevice, describe_moves
from converter.devices.torch.code import CodeDevices, Edit, apply_edits, edit_code
from converter.devices.torch.members import MemberChanges
from converter.devices.torch.tags import KEPT, PickledDevices, retag_pickle
from formats.artifact import Artifact
from formats.containers import jsontext
from formats.containers.pickle.rewriting import Made, Number, Tracer, encode_number
from formats.containers.pickle.unpickler import Budget
from formats.containers.zip.archive import ZipArchive
from formats.containers.zip.rewriting import Content
from formats.core.bundle import Normalisation
from formats.errors import CorruptError, UnsupportedError
from formats.limits import MIB, Limits
from formats.torch import script as torch_script

PICKLES = ("data.pkl", "constants.pkl", "bytecode.pkl", "traced_inputs.pkl", "attributes.pkl")
MAX_CODE_BYTES = 64 * MIB  # of all source texts
TABLE = re.compile(rb'(?<!\\)"device"\s*:\s*"([a-z]+(?::\d+)?)"')


def move(artifact: Artifact, device: TorchDevice) -> MemberChanges:
    """Return the changes of members that move a TorchScript archive to a device.

    Raises:
        UnsupportedError: The program cannot be moved.
        CorruptError: It is damaged.
    """
    return Program(artifact, device).changes()


class Program:
    """An archive, and the changes that move it."""

    def __init__(self, artifact: Artifact, device: TorchDevice) -> None:
        """Open an archive.

        Raises:
            UnsupportedError: It is a flatbuffer.
            CorruptError: It is not a TorchScript archive.
        """
        if artifact.head[4:8] == torch_script.FLATBUFFER:
            raise UnsupportedError(
                "not supported: moving a PyTorch mobile model in the flatbuffer format",
                where=artifact.path,
            )
        archive = artifact.zip
        prefix = None if archive is None else torch_script.prefix_of(archive)
        if archive is None or prefix is None:
            raise CorruptError("is no TorchScript archive", where=artifact.path)
        self.archive: ZipArchive = archive
        self.prefix: str = prefix
        self.name = artifact.name
        self.device = device
        self.limits: Limits = artifact.limits
        self.budget = Budget(artifact.limits.max_pickle_opcodes)
        self.map_budget = Budget(artifact.limits.max_pickle_opcodes)
        self.in_pickles = PickledDevices()
        self.in_code = CodeDevices()
        self.rows: Counter[str] = Counter()
        self.replaced: dict[str, Content] = {}

    def changes(self) -> MemberChanges:
        """Return the changes of members.

        Raises:
            UnsupportedError: The program cannot be moved.
            CorruptError: It is damaged.
        """
        bytecode = self._retag_pickles()
        self._rewrite_table()
        home = {d for d in (*self.in_pickles.storages, *self.rows) if d != KEPT}
        self._rewrite_code(home or set(self.in_pickles.devices))
        if kept := set(self.in_code.kept) & bytecode:
            raise UnsupportedError(
                f"not supported: mobile bytecode that is moved, but compares with {min(kept)}",
                where=self.name,
            )
        return MemberChanges(self.replaced, list(self._normalisations()), list(self._warnings()))

    def _retag_pickles(self) -> set[str]:
        """Retag the pickles; return the devices that mobile bytecode names."""
        bytecode: set[str] = set()
        for short in PICKLES:
            name = self.prefix + short
            if name not in self.archive:
                continue
            data = self.archive.read(name, self.limits.max_pickle_bytes)
            where = f"{self.name}!{name}"
            new, found = retag_pickle(data, self.device, self.limits, self.budget, where)
            self._replace(name, data, new)
            self.in_pickles.storages += found.storages
            self.in_pickles.devices += found.devices
            if short == "bytecode.pkl":
                bytecode = set(found.devices)
            else:
                self.in_pickles.texts += found.texts
        return bytecode

    def _rewrite_table(self) -> None:
        """Rewrite the table of tensors of torch 1.0 to 1.2."""
        name = self.prefix + "model.json"
        if name not in self.archive:
            return
        data = self.archive.read(name, self.limits.max_header_bytes)
        wanted = f"{self.device}".encode()

        def row(match: re.Match[bytes]) -> bytes:
            self.rows[match[1].decode()] += 1
            start, end = match.start(1) - match.start(), match.end(1) - match.start()
            return match[0][:start] + wanted + match[0][end:]

        new = TABLE.sub(row, data)
        before = jsontext.parse(data, where=name, limit=self.limits.max_header_bytes)
        after = jsontext.parse(new, where=name, limit=2 * self.limits.max_header_bytes)
        tables = [m.pop("tensors", None) if isinstance(m, dict) else None for m in (before, after)]
        rows = tables[0]
        if before != after or not isinstance(rows, list) or len(rows) < self.rows.total():
            raise UnsupportedError("model.json names devices in another place", where=self.name)
        self._replace(name, data, new)

    def _rewrite_code(self, home: set[str]) -> None:
        """Rewrite source texts, and the source maps that lead from them to the author's source."""
        start, left = f"{self.prefix}code/", MAX_CODE_BYTES
        for name in self.archive.members:
            if not name.startswith(start) or not name.endswith(".py"):
                continue
            code = self.archive.read(name, left)
            left -= len(code)
            edits = edit_code(code, self.device, home, self.in_code)
            if not edits:
                continue
            self._replace(name, code, apply_edits(code, edits))
            self._shift_source_map(f"{name}.debug_pkl", edits)
            self._shift_source_map(
                f"{self.prefix}debug/{name[len(start) : -3]}.pkl", edits
            )  # torch 1.2

    def _shift_source_map(self, name: str, edits: list[Edit]) -> None:
        if name in self.archive:
            data = self.archive.read(name, self.limits.max_pickle_bytes)
            self._replace(
                name, data, shift_positions(data, edits, self.limits, self.map_budget, name)
            )

    def _replace(self, name: str, before: bytes, after: bytes) -> None:
        if after != before:
            self.replaced[name] = Content.of(after)

    def _normalisations(self) -> Iterator[Normalisation]:
        for what, counts in (
            ("storages moved", self.in_pickles.storages + self.rows),
            ("device attributes and constants moved", self.in_pickles.devices),
            ("devices in code moved", self.in_code.literals),
        ):
            moves = {d: n for d, n in counts.items() if d not in (KEPT, str(self.device))}
            if moves:
                detail = describe_moves(dict(sorted(moves.items())), self.device)
                yield Normalisation(what, sum(moves.values()), detail)

    def _warnings(self) -> Iterator[str]:
        for text, count in self.in_code.warnings.items():
            yield f"the code {text} ({count}): left as it is"
        for text, count in self.in_pickles.texts.items():
            yield f"an attribute is the text {text!r} ({count}): left as it is"


def shift_positions(
    data: bytes, edits: list[Edit], limits: Limits, budget: Budget, where: str
) -> bytes:
    """Return a source map whose positions follow the edits of a text.

    It is a tuple of records that begin with a position; since torch 1.11, after a table of strings.

    Raises:
        CorruptError: It is not a pickle.
    """
    pickle = Tracer(data, limits, budget, where)
    value = pickle.load()
    if isinstance(value, tuple) and len(value) == 3 and value[0] == "FORMAT_WITH_STRING_TABLE":
        value = value[2]
    ends = [edit.end for edit in edits]
    grown = [0]
    for edit in edits:
        grown.append(grown[-1] + len(edit.data) - (edit.end - edit.start))
    for record in value if isinstance(value, (tuple, list)) else ():
        at = record[0] if isinstance(record, Made) and record else None
        if isinstance(at, Number) and (more := grown[bisect_right(ends, at)]):
            pickle.put(at.start, at.end, encode_number(at + more))
    return pickle.rewrite()
