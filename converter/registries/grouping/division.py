"""A folder that is divided into artifacts: what it lists, and what is found in it so far."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

MLFLOW = "mlflow"  # the kind of a group that is no format of the catalog
TENSORFLOW = "tf-checkpoint"
TRAINING = "training state beside a model"
LARGEST_INDEX = 100 << 20  # bytes of JSON


@dataclass(frozen=True, slots=True)
class Listing:
    """A folder.

    Attributes:
        label: Its own name.
        files: Names of its files, sorted; hidden ones are not there, but for ``.metadata``.
        folders: Names of its folders, likewise.
        read: All bytes of a file that has at most so many; of a larger one, or one that cannot be
            read, none.
        head: The first so many bytes of a file, whatever its size.
        inside: Names of files and folders directly in one of its folders.
    """

    label: str
    files: Sequence[str]
    folders: Sequence[str]
    read: Callable[[str, int], bytes]
    head: Callable[[str, int], bytes]
    inside: Callable[[str], Sequence[str]]


@dataclass(frozen=True, slots=True)
class Group:
    """An artifact of several files.

    Attributes:
        paths: What opens it, relative to the folder, "" for the folder itself: the first that
            detection finds to be of this kind is taken.
        kind: Row id of `formats.catalog`, `MLFLOW`, or "" where any will do.
        files: Names of its files.
        folders: Names of the folders that belong to it wholly.
        name: What to call it relative to the folder; None for what opens it.
        is_certain: Whether it is an artifact even where no detection says so, and then a damaged
            one; else its files are looked at alone.
        checkpoint: What opens the checkpoint that has the values of this graph's variables.
    """

    paths: tuple[str, ...]
    kind: str = ""
    files: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    name: str | None = None
    is_certain: bool = True
    checkpoint: str = ""

    @property
    def called(self) -> str:
        """Its name relative to the folder; "" for the folder itself."""
        return self.paths[0] if self.name is None else self.name


@dataclass(slots=True)
class Division:
    """A folder, divided.

    Attributes:
        listing: The folder.
        groups: Artifacts of several files.
        skipped: Name → why it is no artifact.
        notes: Name → what is to be known of a file that is an artifact by itself.
        files: Names that are in no group, and may each be an artifact.
        folders: Names of folders that are in no group.
    """

    listing: Listing
    groups: list[Group] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    files: dict[str, None] = field(init=False)
    folders: dict[str, None] = field(init=False)

    def __post_init__(self) -> None:
        self.files = dict.fromkeys(self.listing.files)
        self.folders = dict.fromkeys(self.listing.folders)

    def add(self, group: Group) -> None:
        """Add a group; its files and folders are no longer left."""
        self.groups.append(group)
        self.take(group.files, group.folders)

    def take(self, files: Iterable[str] = (), folders: Iterable[str] = ()) -> None:
        """Mark files and folders as part of something."""
        for name in files:
            self.files.pop(name, None)
        for name in folders:
            self.folders.pop(name, None)

    def skip(self, names: Iterable[str], reason: str) -> None:
        """Skip names, with a reason."""
        names = list(names)
        self.take(names, names)
        self.skipped.update(dict.fromkeys(names, reason))


def present(names: Iterable[str], there: Mapping[str, None]) -> tuple[str, ...]:
    """Return those of the names that are there."""
    return tuple(name for name in names if name in there)
