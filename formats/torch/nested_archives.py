"""Archives whose members are torch files: stable-baselines3, NeMo, plain zips."""

import base64
import binascii

from formats.artifact import Artifact
from formats.containers import jsontext
from formats.containers.tar import is_tar, tar_members
from formats.containers.zip.archive import LOCAL_MAGIC, Member
from formats.core.bundle import JSON, Bundle
from formats.core.storage import HEAD, Span
from formats.errors import ConvertError, CorruptError
from formats.limits import MIB
from formats.torch.bundle import finish
from formats.torch.containers import Session, is_legacy_tar, is_stream, read_any
from formats.torch.training_groups import OPTIMIZER_KEY
from formats.torch.walk import Tree

SUFFIXES = (".pth", ".pt", ".ckpt", ".th", ".bin", ".pth.tar")
TEXTS = (".json", ".txt", ".yaml", ".yml", ".model", ".vocab")
MAX_TEXT = 1 * MIB
MAX_DATA = 16 * MIB  # the JSON of stable-baselines3
SB3_VERSION = "_stable_baselines3_version"


def sniff(artifact: Artifact) -> str | None:
    """Return the evidence that this is a zip or tar archive of torch files."""
    kind = "zip" if artifact.zip is not None else "tar"
    first = next(iter(_torch_files(_members(artifact))), None)
    return None if first is None else f"a {kind} archive with the torch file {first}"


def _members(artifact: Artifact) -> dict[str, Span | Member]:
    """Return all members of a zip or tar archive."""
    if artifact.zip is not None:
        return dict(artifact.zip.members)
    if not is_tar(artifact.head) or is_legacy_tar(artifact.head):
        return {}
    try:
        return dict(tar_members(artifact.span, artifact.name, artifact.limits))
    except ConvertError:
        return {}


def _torch_files(members: dict[str, Span | Member]) -> dict[str, Span]:
    """Return the members that are torch files; none where the archive is one itself."""
    if any(n.rpartition("/")[2] in ("data.pkl", "model.json") for n in members):
        return {}
    found = {}
    for name, member in members.items():
        if name.endswith(SUFFIXES) and not name.startswith("__MACOSX/"):
            span = _as_torch(member)
            if span is not None:
                found[name] = span
    return found


def _as_torch(member: Span | Member) -> Span | None:
    """Return a member's bytes where they begin like a torch file."""
    try:
        span = member if isinstance(member, Span) else member.span()
        head = span.read(0, min(HEAD, span.length))
    except ConvertError:
        return None
    known = head.startswith(LOCAL_MAGIC) or is_stream(head) or is_legacy_tar(head)
    return span if known or head[:1] == b"\x80" else None


def read(artifact: Artifact) -> Bundle:
    """Read all torch files of an archive as one.

    Raises:
        CorruptError: One of them is damaged.
        LimitError: They ask for more than the limits grant.
    """
    members = _members(artifact)
    files = _torch_files(members)
    if not files:
        raise CorruptError("holds no torch file", where=artifact.path)
    session = Session.begin(artifact.limits)
    tree = session.tree()
    recorded: dict[str, str] = {}
    for name, span in files.items():
        _add(tree, name, span, session, recorded, artifact.name, alone=len(files) == 1)
    assets: dict[str, Span] = {}
    variant = f"{'zip' if artifact.zip is not None else 'tar'} archive of torch files"
    for name, member in members.items():
        if name in files:
            continue
        span = member if isinstance(member, Span) else member.span()
        if name == SB3_VERSION and span.length < 64:
            recorded["stable_baselines3_version"] = span.read().decode("utf-8", "replace").strip()
            variant = "stable-baselines3 archive"
        elif name == "system_info.txt" and span.length < MAX_TEXT:
            _system_info(span.read().decode("utf-8", "replace"), recorded)
        elif name == "data" and SB3_VERSION in members and span.length < MAX_DATA:
            _parameters(span, session, tree, artifact.name)
        elif name.endswith(TEXTS) and ".." not in name.split("/") and not name.startswith("/"):
            assets[name] = span
        else:
            tree.leave_out(name, "a member that is no torch file")
    return finish(
        tree, session, format="torch-members", variant=variant, recorded=recorded, assets=assets
    )


def _add(
    tree: Tree,
    name: str,
    span: Span,
    session: Session,
    recorded: dict[str, str],
    where: str,
    *,
    alone: bool,
) -> None:
    stem = name
    for suffix in SUFFIXES:
        stem = stem.removesuffix(suffix)
    path = "" if alone else stem.replace("/", ".")
    loaded = read_any(span, session, f"{where}!{name}")
    optimizer = OPTIMIZER_KEY.search(stem.rpartition("/")[2])
    tree.add(loaded.value, path, name, "optimizer" if optimizer else None)
    for i, constant in enumerate(loaded.constants):
        tree.add(constant, f"{path}.CONSTANTS.c{i}" if path else f"CONSTANTS.c{i}", name)
    recorded |= loaded.recorded


def _system_info(text: str, recorded: dict[str, str]) -> None:
    """Note lines like ``- PyTorch: 2.0.1+cu118``."""
    for line in text.splitlines()[:50]:
        key, colon, value = line.lstrip("- ").partition(":")
        if colon and key and value.strip():
            recorded[key.strip()[:80]] = value.strip()[:200]


def _parameters(span: Span, session: Session, tree: Tree, where: str) -> None:
    """Note the JSON of constructor arguments; what it holds pickled is looked at, not run."""
    value = jsontext.parse(span.read(), where=f"{where}!data", limit=MAX_DATA)
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
