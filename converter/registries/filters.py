"""Which entries of a registry are wanted: ``--include``, ``--exclude``, ``--filter``."""

from dataclasses import dataclass
from fnmatch import fnmatchcase


@dataclass(frozen=True, slots=True)
class Filters:
    """What the user wants of a registry.

    Attributes:
        include: Globs over names; none of them stands for all. ``*`` crosses ``/``.
        exclude: Globs over names, which go before.
        query: A filter string in MLflow's own words, or "".
    """

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    query: str = ""

    def wants(self, name: str) -> bool:
        """Tell whether an entry of this name is wanted."""
        if any(fnmatchcase(name, glob) for glob in self.exclude):
            return False
        return not self.include or any(fnmatchcase(name, glob) for glob in self.include)
