"""``torch.package`` archives: pickles and source files in one zip, storages in ``.data/``.

Spec: https://github.com/pytorch/pytorch/blob/v2.13.0/torch/package/package_importer.py
"""

from formats.artifact import Artifact
from formats.containers.pickle.unpickler import Unpickler
from formats.containers.pickle.values import Global, Record
from formats.containers.zip.archive import ZipArchive
from formats.core.bundle import Bundle, Topology
from formats.errors import CorruptError
from formats.torch.bundle import finish
from formats.torch.containers import Session
from formats.torch.tensor_values import as_text
from formats.torch.zip_storages import ZipStorages, zip_records

TEXT_SUFFIXES = (".json", ".txt", ".yaml", ".yml", ".md", ".cfg", ".ini", ".csv")


def sniff(artifact: Artifact) -> str | None:
    """Return the evidence that this is a torch.package archive."""
    prefix = None if artifact.zip is None else _prefix(artifact.zip)
    return None if prefix is None else f"a zip archive with {prefix}.data/extern_modules"


def _prefix(archive: ZipArchive) -> str | None:
    last = ".data/extern_modules"
    found = [n for n in archive.members if n == last or n.endswith("/" + last)]
    shortest = min(found, key=len, default=None)
    return None if shortest is None else shortest.removesuffix(last)


def read(artifact: Artifact) -> Bundle:
    """Read every pickle of a package. Its modules are not imported.

    Raises:
        CorruptError: It is damaged.
        LimitError: It asks for more than the limits grant.
    """
    archive = artifact.zip
    prefix = None if archive is None else _prefix(archive)
    if archive is None or prefix is None:
        raise CorruptError("is no torch.package archive", where=artifact.path)
    session = Session.begin(artifact.limits)
    storages = _PackageStorages(archive, prefix, artifact.name, session)
    pickles = [
        n for n in archive.members
        if n.startswith(prefix) and n.endswith(".pkl") and not n.startswith(f"{prefix}.data/")
    ]  # fmt: skip
    loaded = {}
    for name in pickles:
        vm = session.unpickler(archive[name].span(), f"{artifact.name}!{name}", storages)
        loaded[name[len(prefix) : -len(".pkl")]] = session.load(vm)
    tree = session.tree()
    for name, value in loaded.items():
        path = name.replace("/", ".") if len(loaded) > 1 else ""
        tree.add(value, path, f"{name}.pkl")
    recorded = zip_records(archive, prefix)
    python = archive.members.get(f"{prefix}.data/python_version")
    if python is not None and python.size <= 64:
        recorded["python_version"] = python.read(64).decode("utf-8", "replace").strip()
    others = {
        n[len(prefix) :]: m
        for n, m in archive.members.items()
        if n.startswith(prefix) and not n.startswith(f"{prefix}.data/") and n not in pickles
    }
    content = {n: m.span() for n, m in others.items() if n.endswith(".py")}
    assets = {n: m.span() for n, m in others.items() if n.endswith(TEXT_SUFFIXES) and _safe(n)}
    for name in sorted(others.keys() - content.keys() - assets.keys() - {"byteorder"}):
        tree.leave_out(name, "a resource of the package")
    topology = Topology(
        "torch_package", {"sources": len(content), "pickles": len(pickles)}, content
    )
    return finish(
        tree, session, format="torch-package", variant="torch.package archive",
        recorded=recorded, topology=topology, assets=assets,
    )  # fmt: skip


def _safe(name: str) -> bool:
    return not name.startswith("/") and ".." not in name.split("/")


class _PackageStorages(ZipStorages):
    """What the persistent ids of a package name: storages, and objects that rebuild themselves."""

    def __init__(self, archive: ZipArchive, prefix: str, where: str, session: Session) -> None:
        order = zip_records(archive, prefix).get("byteorder")
        super().__init__(
            archive, f"{prefix}.data/{{}}.storage", where, "big" if order == "big" else "little"
        )
        self.prefix = prefix
        self.session = session
        self._made: dict[str, object] = {}

    def __call__(self, vm: Unpickler, pid: object) -> object:
        """Return what a persistent id names."""
        if not isinstance(pid, tuple) or not pid or as_text(pid[0]) != "reduce_package":
            return super().__call__(vm, pid)
        if len(pid) < 3 or not isinstance(pid[-1], tuple):
            return Record("persistent id", pid)
        key = as_text(pid[1]) if len(pid) == 4 else None
        if key is not None and key in self._made:
            return self._made[key]
        function, args = pid[-2], pid[-1]
        value: object
        if isinstance(function, Global) and function.name.endswith(".unpackage_script_module"):
            value = self._script(vm, args)
        else:
            value = vm.call(function, args)
        if key is not None:
            self._made[key] = value
        return value

    def _script(self, vm: Unpickler, args: tuple[object, ...]) -> object:
        """Return a TorchScript module that the package holds, as its attributes."""
        number = as_text(args[0]) if args else None
        name = f"{self.prefix}.data/ts_code/{number}/data.pkl"
        if number is None or name not in self.archive:
            raise vm.corrupt(f"refers to a script module {number!r:.40} that is not stored")
        storages = ZipStorages(self.archive, f"{self.prefix}.data/{{}}", self.where, self.byteorder)
        inner = self.session.unpickler(self.archive[name].span(), f"{self.where}!{name}", storages)
        return self.session.load(inner)
