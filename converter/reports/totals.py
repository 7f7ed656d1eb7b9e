"""The figures of a whole batch, each derived from its records."""

from dataclasses import dataclass, field

from converter.jobs.record import Record
from converter.reports.outcomes import has_equal_weights, is_converted


@dataclass(slots=True)
class Totals:
    """Sums over records, added one by one.

    Attributes:
        artifacts: How many records there are.
        converted: How many have an output.
        equal: How many have weights that were compared and are equal, bit for bit.
        compared: How many have graphs whose outputs were compared with those of their sources.
        bytes: Size of all artifacts, as far as it is known.
        seconds: Time that was spent on them.
        places: Digest of weights → numbers of the records with these weights.
        weights: Digest of weights → their size in bytes.
    """

    artifacts: int = 0
    converted: int = 0
    equal: int = 0
    compared: int = 0
    bytes: int = 0
    seconds: float = 0.0
    places: dict[str, list[int]] = field(default_factory=dict)
    weights: dict[str, int] = field(default_factory=dict)

    def add(self, record: Record) -> None:
        """Add a record."""
        if record.weights_digest:
            self.places.setdefault(record.weights_digest, []).append(self.artifacts)
            self.weights[record.weights_digest] = record.weight_bytes
        self.artifacts += 1
        self.converted += is_converted(record)
        self.equal += has_equal_weights(record)
        self.compared += record.verification.reached in ("cpu", "device")
        self.bytes += record.bytes or 0
        self.seconds += record.seconds

    def copies(self) -> list[tuple[int, list[int]]]:
        """Return size and records of each set of weights that is there more than once."""
        several = ((d, places) for d, places in self.places.items() if len(places) > 1)
        return [(self.weights[digest], places) for digest, places in several]
