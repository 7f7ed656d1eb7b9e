"""Files of ``torch.save`` of every version: zips, streams, tar archives; and bare pickles."""

from formats.artifact import Artifact
from formats.containers.pickle.decoder import OPCODES
from formats.containers.zip.archive import ZipArchive
from formats.core.bundle import JSON, Bundle, Topology
from formats.torch.bundle import finish, module_topology
from formats.torch.containers import Session, is_legacy_tar, is_stream, read_any
from formats.torch.foreign_pickles import refuse_foreign
from formats.torch.zip_storages import find_prefix

# First bytes of a protocol 0 or 1 pickle that begins with a global, a mark or a container.
TEXT_STARTS = (b"c", b"(", b"}", b"]")
TEXT_HINTS = (b"torch", b"numpy", b"collections\n", b"__builtin__\n", b"copy_reg\n", b"copyreg\n")


def sniff(artifact: Artifact) -> str | None:
    """Return the evidence that this is a file of ``torch.save``, or a pickle."""
    head = artifact.head
    if artifact.zip is not None:
        return _sniff_zip(artifact.zip)
    if is_stream(head):
        return "torch's magic number"
    if is_legacy_tar(head):
        return "a tar archive that begins with a member of torch before 0.1.10"
    if len(head) > 2 and head[0] == 0x80 and 2 <= head[1] <= 5 and head[2:3] in OPCODES:
        return f"a pickle of protocol {head[1]}"
    hinted = head.startswith(TEXT_STARTS) and any(h in head for h in TEXT_HINTS)
    # Text may look so too; a pickle ends with a full stop.
    if hinted and artifact.span.read(artifact.span.length - 1) in (b".", b"\n"):
        return "a pickle of protocol 0 or 1"
    return None


def _sniff_zip(archive: ZipArchive) -> str | None:
    prefix = find_prefix(archive)
    if prefix is None or f"{prefix}constants.pkl" in archive:
        return None
    if any(n.startswith((f"{prefix}code/", f"{prefix}.data/version")) for n in archive.members):
        return None
    return f"a zip archive with {prefix}data.pkl"


def read(artifact: Artifact) -> Bundle:
    """Read a torch file without running anything in it.

    Raises:
        CorruptError: It is damaged.
        LimitError: It asks for more than the limits grant.
        UnsupportedError: It needs objects from outside, or is a pickle of another library.
    """
    session = Session.begin(artifact.limits, artifact.span.length)
    loaded = read_any(artifact.span, session, artifact.name, artifact.zip)
    tree = session.tree()
    tree.add(loaded.value)
    if loaded.framework is None and not tree.modules:
        refuse_foreign(loaded.value, loaded.names, artifact.name, calls=bool(session.calls))
    topology = None
    if tree.modules:
        topology = module_topology(tree.modules)
        if loaded.sources:
            content: dict[str, JSON] = {"modules": dict(tree.modules)}
            content["sources"] = dict(loaded.sources)
            topology = Topology(topology.kind, topology.summary, content)
    return finish(
        tree, session, format="torch", variant=loaded.variant, recorded=loaded.recorded,
        topology=topology, framework=loaded.framework,
    )  # fmt: skip
