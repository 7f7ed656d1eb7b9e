"""Gaps across a registry: which of them block how many models, and in which order to fix them.

A model is blocked until all its gaps are gone, so the gap that most models have is not always the
one whose end frees most. The order is a greedy one: at each step the gap that, with those before
it, unblocks most; of several the one that most blocked models have.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

from converter.jobs.record import Unsupported


@dataclass(frozen=True, slots=True)
class Ranked:
    """One gap of a registry.

    Attributes:
        what: It.
        models: How many artifacts have it.
        count: How often it is met in all of them.
        unblocked: How many artifacts have no gap left, once this one and those before it are gone.
    """

    what: str
    models: int
    count: int
    unblocked: int


@dataclass(slots=True)
class Gaps:
    """The gaps of a registry, as records come by.

    Attributes:
        blocked: How many artifacts have any.
    """

    blocked: int = 0
    _models: Counter[str] = field(default_factory=Counter)
    _counts: Counter[str] = field(default_factory=Counter)
    _together: Counter[frozenset[str]] = field(default_factory=Counter)

    def add(self, unsupported: Iterable[Unsupported]) -> None:
        """Count what one artifact has that is not supported."""
        counts: Counter[str] = Counter()
        for one in unsupported:
            counts[one.what] += one.count
        if counts:
            self.blocked += 1
            self._models.update(counts.keys())
            self._counts.update(counts)
            self._together[frozenset(counts)] += 1

    def ranked(self) -> list[Ranked]:
        """Return the gaps in the order in which to fix them."""
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
                continue  # it was worth more meanwhile
            unblocked += frees[what]
            found[what] = Ranked(what, self._models[what], self._counts[what], unblocked)
            for number in having[what]:
                left[number].discard(what)
                if len(left[number]) == 1:
                    (last,) = left[number]
                    frees[last] += models[number]
                    heappush(waiting, entry(last))
        return [*found.values()]
