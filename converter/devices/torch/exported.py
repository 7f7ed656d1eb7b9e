"""Move an archive of ``torch.export`` to a device, without torch and without the device.

This changes the devices in the graph's JSON (values, arguments of nodes), in the tables of weights
and constants of torch 2.7 and later, and the locations of storages in the torch files inside:
weights and constants of torch 2.1 to 2.6, and the inputs that the program was exported with.

Spec: https://github.com/pytorch/pytorch/blob/v2.13.0/torch/export/pt2_archive/_package.py
"""

import re
from collections.abc import Iterator

from converter.devices.names import TorchDevice, describe_moves
from converter.devices.torch import graph_json
from converter.devices.torch.graph_json import GraphDevices
from converter.devices.torch.members import MemberChanges, with_serialization_id
from converter.devices.torch.tags import KEPT, PickledDevices, retag_pickle
from formats.artifact import Artifact
from formats.containers import jsontext
from formats.containers.pickle.unpickler import Budget
from formats.containers.zip.archive import LOCAL_MAGIC, ZipArchive
from formats.containers.zip.rewriting import Content, Rewriter
from formats.core.bundle import Normalisation
from formats.core.storage import Span
from formats.errors import CorruptError, UnsupportedError
from formats.limits import Limits
from formats.torch import export as torch_export
from formats.torch.zip_storages import find_prefix

GRAPHS = re.compile(
    r"models/.+\.json|serialized_exported_program\.json"
    r"|data/(?:weights|constants)/.+_(?:weights|constants)_config\.json"
)
NESTED = re.compile(
    r"serialized_(?:state_dict|constants|example_inputs)\.pt"
    r"|data/(?:weights|constants|sample_inputs)/.+\.pt"
)
COMPILED = "data/aotinductor/"
OBJECTS = re.compile(r"data/constants/(?:custom|opaque)_obj_.*")


def move(artifact: Artifact, device: TorchDevice) -> MemberChanges:
    """Return the changes of members that move an archive of torch.export to a device.

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
            CorruptError: It is not an archive of torch.export.
            UnsupportedError: It holds code that was compiled for a device.
        """
        archive = artifact.zip
        prefix = None if archive is None else torch_export.prefix_of(archive)
        if archive is None or prefix is None:
            raise CorruptError("is no archive of torch.export", where=artifact.path)
        self.archive: ZipArchive = archive
        self.prefix: str = prefix
        self.name = artifact.name
        self.device = device
        self.limits: Limits = artifact.limits
        self.budget = Budget(artifact.limits.max_pickle_opcodes)
        self.in_files = PickledDevices()
        self.in_graphs = GraphDevices()
        self.objects = 0
        compiled = [n for n in archive.members if n.startswith(f"{prefix}{COMPILED}")]
        if compiled:
            raise UnsupportedError(
                f"not supported: moving code that AOTInductor compiled ({compiled[0]})",
                where=artifact.path,
                hint="Export the model again without compiling it",
            )

    def changes(self) -> MemberChanges:
        """Return the changes of members.

        Raises:
            UnsupportedError: The program cannot be moved.
            CorruptError: It is damaged.
        """
        replaced: dict[str, Content] = {}
        files = self._find_pickled_files()
        for name in self.archive.members:
            short = name.removeprefix(self.prefix)
            if not name.startswith(self.prefix):
                continue
            content = None
            if GRAPHS.fullmatch(short):
                content = self._move_graph(name)
            elif NESTED.fullmatch(short) or short in files:
                content = self._move_file(name)
            elif OBJECTS.fullmatch(short):
                self.objects += 1
            if content is not None:
                replaced[name] = content
        return MemberChanges(replaced, list(self._normalisations()), list(self._warnings()))

    def _find_pickled_files(self) -> set[str]:
        """Return the members that are torch files according to the tables of weights."""
        files: set[str] = set()
        for name in self.archive.members:
            table = torch_export.CONFIG.fullmatch(name.removeprefix(self.prefix))
            if table is None or not name.startswith(self.prefix):
                continue
            limit = self.limits.max_inflated_bytes
            config = jsontext.parse(self.archive.read(name, limit), where=name, limit=limit)
            for row in torch_export.rows_of(config, name).values():
                file = row.get("path_name") if isinstance(row, dict) else None
                if isinstance(row, dict) and row.get("use_pickle") is True:
                    files.add(f"data/{table[1]}/{file}")
        return files

    def _move_graph(self, name: str) -> Content | None:
        limit = self.limits.max_inflated_bytes
        data = self.archive.read(name, limit)
        is_old, where = name.endswith(torch_export.PROGRAM), f"{self.name}!{name}"
        new = graph_json.move_graph_json(
            data, self.device, self.in_graphs, is_old=is_old, limit=limit, where=where
        )
        return None if new == data else Content.of(new)

    def _move_file(self, name: str) -> Content | None:
        """Return a torch file inside, its storages moved; None if nothing changes."""
        span, where = self.archive[name].span(), f"{self.name}!{name}"
        if not span.length:
            return None
        if span.read(0, min(4, span.length)) != LOCAL_MAGIC:
            raise UnsupportedError("not supported: a torch file of before 1.6", where=where)
        inner = ZipArchive(span, self.limits)
        prefix = find_prefix(inner)
        if prefix is None:
            raise CorruptError("zip archive without data.pkl", where=where)
        data = inner.read(f"{prefix}data.pkl", self.limits.max_pickle_bytes)
        new, found = retag_pickle(data, self.device, self.limits, self.budget, where)
        self.in_files.storages += found.storages
        self.in_files.devices += found.devices
        if new == data:
            return None
        return Content.read(_rewrite_nested(inner, span, f"{prefix}data.pkl", new))

    def _normalisations(self) -> Iterator[Normalisation]:
        for what, counts in (
            ("storages moved", self.in_files.storages),
            ("devices in torch files moved", self.in_files.devices),
            ("devices of values and weights moved", self.in_graphs.values),
            ("devices of nodes' arguments moved", self.in_graphs.arguments),
        ):
            moves = {d: n for d, n in counts.items() if d not in (KEPT, str(self.device))}
            if moves:
                detail = describe_moves(dict(sorted(moves.items())), self.device)
                yield Normalisation(what, sum(moves.values()), detail)

    def _warnings(self) -> Iterator[str]:
        for text, count in self.in_graphs.warnings.items():
            yield f"{text} ({count})"
        if self.objects:
            yield f"objects that are no tensors ({self.objects}): left as they are"


def _rewrite_nested(archive: ZipArchive, span: Span, name: str, data: bytes) -> list[bytes | Span]:
    rewriter = Rewriter(archive, span)
    return rewriter.rewrite(with_serialization_id(rewriter, {name: Content.of(data)}))
