"""Recognise pickles of other libraries, whose models are objects rather than named tensors.

A pickle without anything of torch may still be a checkpoint: a dict of NumPy arrays. A pickled
estimator of scikit-learn is not: a few of its attributes are arrays, and the rest of the model,
such as its trees, would be left out.
"""

from collections.abc import Iterable, Mapping

from formats.containers.pickle.values import Record
from formats.errors import UnsupportedError
from formats.other_libraries import LIBRARIES, Library


def refuse_foreign(value: object, names: Iterable[str], where: str, *, calls: bool) -> None:
    """Refuse a pickle that is no checkpoint.

    Args:
        value: What was pickled.
        names: Dotted names of the classes and functions that it refers to.
        where: The file.
        calls: Whether it would call functions that are not known: then it is left to the safety
            findings, unless the library is known.

    Raises:
        UnsupportedError: It is an object, or holds objects of a library that is not torch.
    """
    library = LIBRARIES.get(value.cls.partition(".")[0]) if isinstance(value, Record) else None
    if isinstance(value, Record) and (library or not calls):
        raise UnsupportedError(
            f"is a pickle of a {value.cls}{_describe(library, value)}, not a checkpoint",
            expected="a pickle of tensors or arrays by name",
            where=where,
            hint=(library.hint if library else "") or None,
        )
    found = sorted(name for name in names if name.partition(".")[0] in LIBRARIES)
    if found:
        library = LIBRARIES[found[0].partition(".")[0]]
        raise UnsupportedError(
            f"is a pickle with objects of {library.name} ({found[0]}), not a checkpoint",
            expected="a pickle of tensors or arrays by name",
            where=where,
            hint=library.hint or None,
        )


def _describe(library: Library | None, value: Record) -> str:
    """Return the library of an object with the version that it records."""
    if library is None:
        return ""
    state = value.state[0] if value.state else None
    version = state.get(library.version) if isinstance(state, Mapping) else None
    return f" of {library.name} {version}" if isinstance(version, str) else f" of {library.name}"
