"""Zip archives whose members are torch files: what stable-baselines3 saves, and what people zip."""

import base64
import binascii

from formats.artifact import Artifact
from formats.bundle import JSON, Bundle
from formats.containers import jsontext
from formats.containers.zip import LOCAL_MAGIC, Member, ZipArchive
from formats.errors import ConvertError, CorruptError
from formats.limits import MIB
from formats.torch_bundle import finish
from formats.torch_streams import Session, is_stream, read_any
from formats.torch_tree import OPTIMIZER_KEY, Tree

SUFFIXES = (".pth", ".pt", ".ckpt", ".th", ".bin", ".pth.tar")
MAX_TEXT = 1 * MIB  # a JSON or text member that says something about the others
SB3_VERSION = "_stable_baselines3_version"


def sniff(artifact: Artifact) -> str | None:
    """Return the evidence that this is a zip archive of torch files."""
    if artifact.zip is None:
        return None
    first = next(iter(_members(artifact.zip)), None)
    return None if first is None else f"a zip archive with the torch file {first}"


def _members(archive: ZipArchive) -> dict[str, Member]:
    """Return the members that are torch files; none where the archive is one itself."""
    if any(n.rpartition("/")[2] in ("data.pkl", "model.json") for n in archive.members):
        return {}
    return {
        name: member
        for name, member in archive.members.items()
        if name.endswith(SUFFIXES) and not name.startswith("__MACOSX/") and _is_torch(member)
    }


def _is_torch(member: Member) -> bool:
    try:
        head = member.span().read(0, min(64, member.size))
    except ConvertError:
        return False
    return head.startswith(LOCAL_MAGIC) or is_stream(head) or head[:1] == b"\x80"


def read(artifact: Artifact) -> Bundle:
    """Read all torch files of a zip archive as one.

    Raises:
        CorruptError: One of them is damaged.
        LimitError: They ask for more than the limits grant.
    """
    archive = artifact.zip
    members = {} if archive is None else _members(archive)
    if archive is None or not members:
        raise CorruptError("holds no torch file", where=artifact.path)
    session = Session.begin(artifact.limits)
    tree = Tree(artifact.limits)
    recorded: dict[str, str] = {}
    for name, member in members.items():
        stem = name
        for suffix in SUFFIXES:
            stem = stem.removesuffix(suffix)
        path = stem.replace("/", ".") if len(members) > 1 else ""
        loaded = read_any(member.span(), session, f"{artifact.name}!{name}")
        group = "optimizer" if OPTIMIZER_KEY.search(stem.rpartition("/")[2]) else None
        tree.add(loaded.value, path, name, "optimizer" if group else None)
        recorded |= loaded.recorded
    variant = "zip archive of torch files"
    for name, member in archive.members.items():
        if name in members:
            continue
        if name == SB3_VERSION and member.size < 64:
            recorded["stable_baselines3_version"] = (
                member.read(64).decode("utf-8", "replace").strip()
            )
            variant = "stable-baselines3 archive"
        elif name == "system_info.txt" and member.size < MAX_TEXT:
            _system_info(member.read(MAX_TEXT).decode("utf-8", "replace"), recorded)
        elif name == "data" and member.size < 16 * MIB:
            _parameters(member, session, tree, artifact.name)
        else:
            tree.leave_out(name, "a member that is no torch file")
    return finish(tree, session, format="torch-members", variant=variant, recorded=recorded)


def _system_info(text: str, recorded: dict[str, str]) -> None:
    """Note lines like ``- PyTorch: 2.0.1+cu118``."""
    for line in text.splitlines()[:50]:
        key, colon, value = line.lstrip("- ").partition(":")
        if colon and key and value.strip():
            recorded[key.strip()[:80]] = value.strip()[:200]


def _parameters(member: Member, session: Session, tree: Tree, where: str) -> None:
    """Note the JSON of constructor arguments; what it holds pickled is looked at, not run."""
    limit = 16 * MIB
    value = jsontext.parse(member.read(limit), where=f"{where}!data", limit=limit)
    kept: dict[str, JSON] = {}
    for key, entry in value.items() if isinstance(value, dict) else ():
        if not isinstance(entry, dict) or ":serialized:" not in entry:
            kept[key] = entry
            continue
        tree.opaque[f"data.{key}"] = str(entry.get(":type:", "?"))[:200]
        _inspect(str(entry[":serialized:"]), session, f"{where}!data:{key}")
    tree.add(kept, "data", "data")


def _inspect(encoded: str, session: Session, where: str) -> None:
    """Run a pickled argument through the decoder, for its findings alone."""
    try:
        vm = session.unpickler(base64.b64decode(encoded, validate=True), where)
    except (binascii.Error, ValueError):
        return
    session.load(vm)
