"""The options of a batch."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from converter.jobs.job import Needs
from converter.options import Options
from converter.registries.filters import Filters, matches
from converter.write.output_path import choose_target


@dataclass(frozen=True, slots=True)
class Override:
    """Options of the artifacts with some names.

    Attributes:
        names: Globs over names in the registry, as in `Filters`.
        options: Field of `Options` → value; ``comparison.atol`` is a field of a nested object.
    """

    names: tuple[str, ...]
    options: Mapping[str, object]

    def apply(self, options: Options) -> Options:
        """Return options with the values of this override."""
        nested: dict[str, dict[str, object]] = {}
        changed: dict[str, object] = {}
        for name, value in self.options.items():
            field_name, _, inner = name.partition(".")
            if inner:
                nested.setdefault(field_name, {})[inner] = value
            else:
                changed[field_name] = value
        for field_name, values in nested.items():
            changed[field_name] = replace(getattr(options, field_name), **values)
        return replace(options, **changed)  # type: ignore[arg-type]  # checked when it is parsed


@dataclass(frozen=True, slots=True)
class Request:
    """The options of a batch.

    Attributes:
        registries: References.
        destination: Reference.
        options: Of every conversion.
        filters: Which artifacts.
        ledger: Its file; None for one beside the destination.
        engine: Who runs the jobs.
        jobs: How many at a time; None for the engine's own choice.
        needs: What each takes of a machine.
        address: Of a cluster.
        retries: How often a job is tried again whose worker was lost.
        patience: Seconds without progress after which a cluster is given up.
        shard: Which part of how many, counted from one; (1, 1) for all.
        limit: How many artifacts at most; None for all.
        retry_failed: Do again what failed, though nothing has changed.
        fail_fast: Stop at the first failure.
        fail_on_skipped: End with exit code 4 if an entry of a registry holds a model that is not
            read, of another library for one.
        link: How files that another output has already are stored once: ``reflink``, ``hardlink``;
            None where each output has its own.
        overrides: Options of single artifacts; of several that match, a later one decides.
    """

    registries: tuple[str, ...]
    destination: str
    options: Options
    filters: Filters = field(default_factory=Filters)
    ledger: Path | None = None
    engine: str = "processes"
    jobs: int | None = None
    needs: Needs = field(default_factory=Needs)
    address: str | None = None
    retries: int = 2
    patience: float = 600.0
    shard: tuple[int, int] = (1, 1)
    limit: int | None = None
    retry_failed: bool = False
    fail_fast: bool = False
    fail_on_skipped: bool = False
    link: str | None = None
    overrides: tuple[Override, ...] = ()

    def __post_init__(self) -> None:
        # Ledgers and reports record which target it is.
        object.__setattr__(self, "options", choose_target(self.options))

    def find_overrides(self, name: str) -> tuple[Override, ...]:
        """Return the overrides of an artifact, by its name in the registry."""
        return tuple(one for one in self.overrides if matches(one.names, name))
