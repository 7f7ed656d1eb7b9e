"""The whole nested content of a torch file, for a writer that keeps its structure.

`walk` keeps tensors under names and what else is plain data in JSON's terms. Here the value
stays as the pickle has it: types that plain data tells apart no more (a frozen set and a set, a
path and a text) are records, and sizes and numpy's scalars are still what they were.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from formats.artifact import Artifact
from formats.containers.pickle.constructors import CORE
from formats.containers.pickle.unpickler import Constructor, Unpickler
from formats.containers.pickle.values import Record
from formats.errors import UnsupportedError
from formats.torch.containers import Loaded, Session, read_any
from formats.torch.globals import TORCH

# What is decoded into something plainer that it is not.
PLAINER = ("builtins.frozenset", "builtins.bytearray", "collections.deque")


class Size(tuple[object, ...]):
    """A ``torch.Size``."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Structure:
    """One torch file.

    Attributes:
        value: What was pickled: see `formats.containers.pickle.values`, `formats.torch.globals` and
            `formats.torch.numpy_globals` for the classes in it.
        variant: Which container, in words.
        constants: How many tensors of TorchScript code there are beside it.
    """

    value: object
    variant: str
    constants: int


def _kept(cls: str, make: Constructor) -> Constructor:
    """Return a constructor that notes what would have been made, elements and all."""

    def keep(vm: Unpickler, args: tuple[object, ...]) -> Record:
        return Record(cls, (make(vm, args),))

    return keep


def _size(vm: Unpickler, args: tuple[object, ...]) -> object:
    value = TORCH["torch.Size"](vm, args)
    return Size(value) if isinstance(value, (tuple, list)) else value


def _path(vm: Unpickler, args: tuple[object, ...]) -> object:
    value = CORE["pathlib.Path"](vm, args)
    return Record("pathlib.Path", (value,)) if isinstance(value, str) else value


EXACT: Mapping[str, Constructor] = {
    **{cls: _kept(cls, CORE[cls]) for cls in PLAINER},
    "torch.Size": _size,
    **{cls: _path for cls in CORE if cls.startswith("pathlib.")},
}


def read(artifact: Artifact) -> Structure:
    """Read a torch file again, its structure this time.

    Args:
        artifact: One that `torch_pickle` reads, or another whose file is one of ``torch.save``.

    Raises:
        UnsupportedError: It is no single torch file.
        CorruptError: It is damaged.
        LimitError: It asks for more than the limits grant.
    """
    if not artifact.is_file:
        raise UnsupportedError("its structure is not that of one file", where=artifact.path)
    session = Session.begin(artifact.limits, artifact.span.length)
    session.exact = EXACT
    loaded: Loaded = read_any(artifact.span, session, artifact.name, artifact.zip)
    return Structure(loaded.value, loaded.variant, len(loaded.constants))
