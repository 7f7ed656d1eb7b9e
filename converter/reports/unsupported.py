"""Unsupported ops, arguments and dtypes of a registry: the models that they block, ranked.

A model is blocked until all its unsupported features are implemented, so the most frequent feature
is not always the one that unblocks most models. The ranking is greedy: each step takes the feature
that, with those before it, unblocks most models; ties go to the one that most blocked models have.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

from converter.jobs.record import Unsupported


@dataclass(frozen=True, slots=True)
class Ranked:
    """One unsupported feature of a registry.

    Attributes:
        what: Its description.
        models: Number of artifacts that have it.
        count: Number of its occurrences in all artifacts.
        unblocked: Number of artifacts unblocked once this feature and those before it are
            supported.
    """

    what: str
    models: int
    count: int
    unblocked: int


@dataclass(slots=True)
class Gaps:
    """The unsupported features of a registry, counted record by record.

    Attributes:
        blocked: Number of artifacts with an unsupported feature.
    """

    blocked: int = 0
    _models: Counter[str] = field(default_factory=Counter)
    _counts: Counter[str] = field(default_factory=Counter)
    _together: Counter[frozenset[str]] = field(default_factory=Counter)

    def add(self, unsupported: Iterable[Unsupported]) -> None:
        """Count the unsupported features of one artifact."""
        counts: Counter[str] = Counter()
        for one in unsupported:
            counts[one.what] += one.count
        if counts:
            self.blocked += 1
            self._models.update(counts.keys())
            self._counts.update(counts)
            self._together[frozenset(counts)] += 1

    def rank_features(self) -> list[Ranked]:
        """Return the features in the order in which to implement them."""
        left = [set(gaps) for gaps in self._together]
        models = [*self._together.values()]
        having: dict[str, list[int]] = {what: [] for what in self._models}
        frees: Counter[str] = Counter()  # how many models each would unblock now; it only grows
        for number, gaps in enumerate(left):
            for what in gaps:
                having[what].append(number)
            if len(gaps) == 1:
                frees.update(dict.fromkeys(gaps, models[number]))

        def entry(what: str) -> tuple[int, int, int, str]:
            return -frees[what], -self._models[what], -self._counts[what], what

        waiting = [entry(what) for what in having]
        heapify(waiting)
        found: dict[str, Ranked] = {}
        unblocked = 0
        while waiting:
            *_, what = heappop(waiting)
            if what in found:
                continue  # an outdated entry: its value grew meanwhile
            unblocked += frees[what]
            found[what] = Ranked(what, self._models[what], self._counts[what], unblocked)
            for number in having[what]:
                left[number].discard(what)
                if len(left[number]) == 1:
                    (last,) = left[number]
                    frees[last] += models[number]
                    heappush(waiting, entry(last))
        return [*found.values()]
