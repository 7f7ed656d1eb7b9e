"""Make a `Bundle` of the tensors that a torch reader found."""

from collections.abc import Iterable, Mapping

from formats.containers.zip.archive import ZipArchive
from formats.core.bundle import (
    JSON,
    Bundle,
    LeftOut,
    Metadata,
    SafetyFinding,
    Signature,
    Topology,
)
from formats.core.storage import Span
from formats.torch.containers import Session
from formats.torch.tensors import Maker
from formats.torch.walk import Tree

# Keys that training programs write their version under.
VERSION_KEYS = (
    "pytorch-lightning_version", "pytorch_lightning_version", "lightning_version", "torch_version",
    "pytorch_version", "transformers_version", "mmcv_version", "mmengine_version", "mmdet_version",
    "timm_version",
)  # fmt: skip


def finish(
    tree: Tree,
    session: Session,
    *,
    format: str,
    variant: str,
    recorded: Mapping[str, str],
    topology: Topology | None = None,
    signatures: Iterable[Signature] = (),
    assets: Mapping[str, Span] | None = None,
    findings: Iterable[SafetyFinding] = (),
    framework: str | None = "torch",
    distribution: Mapping[str, JSON] | None = None,
) -> Bundle:
    """Return the bundle of all that was found.

    Raises:
        CorruptError: A tensor lies outside its storage.
    """
    made = Maker(tree).make()
    called = [SafetyFinding("pickle-callable", c.name, c.where) for c in session.calls.values()]
    called += [
        SafetyFinding("pickle-reference", c.name, c.where) for c in session.references.values()
    ]
    left_out = [*tree.left_out, *session.left_out]
    if tree.unnamed:
        left_out.append(LeftOut("…", f"{tree.unnamed} more that are not listed"))
    versions = dict(recorded)
    versions.update({k: v for k in VERSION_KEYS if isinstance(v := tree.user.get(k), str)})
    if topology is None and tree.modules:
        topology = module_topology(tree.modules)
    spread = dict(distribution or {})
    if tree.wrappers:
        spread["wrappers"] = tree.wrappers
    metadata = Metadata(
        format=format,
        variant=variant,
        framework=framework,
        recorded=versions,
        devices=made.devices,
        distribution=spread,
        user=tree.user,
        opaque=tree.opaque,
        tensor_notes=made.notes,
        tensor_devices=made.tensor_devices,
        findings=(*called, *findings),
        left_out=tuple(left_out),
    )
    return Bundle(
        metadata,
        made.weights,
        leftovers=made.leftovers,
        encodings=made.encodings,
        topology=topology,
        signatures=tuple(signatures),
        assets=assets or {},
    )


def asset_members(archive: ZipArchive, start: str, session: Session) -> dict[str, Span]:
    """Return the members of a folder of an archive, without those whose names lead out of it."""
    assets = {}
    for name, member in archive.members.items():
        short = name[len(start) :]
        if not name.startswith(start) or not short:
            continue
        if short.startswith("/") or "\\" in short or ".." in short.split("/"):
            session.left_out.append(LeftOut(name, "a name that leads out of the archive"))
        else:
            assets[short] = member.span()
    return assets


def module_topology(modules: Mapping[str, JSON]) -> Topology:
    """Return a pickled module tree: classes and plain attributes by path."""
    counts: dict[str, JSON] = {}
    for entry in modules.values():
        cls = str(entry.get("class", "?")) if isinstance(entry, dict) else "?"
        before = counts.get(cls, 0)
        counts[cls] = 1 + (before if isinstance(before, int) else 0)
    return Topology("torch_modules", {"modules": len(modules), "classes": counts}, dict(modules))
