"""String tensors as two numeric ones: all bytes, and the offset of each string.

A logical tensor ``vocab`` of shape ``[3]`` becomes ``vocab.bytes`` (uint8) and ``vocab.offsets``
(int64, one more than there are strings, row-major order), bound by an `Encoding` of kind
``string``: Arrow's layout, which any runtime can rebuild.
"""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import prod

from formats.core.bundle import Encoding
from formats.core.storage import Span
from formats.core.weights import CHUNK, DTYPES, Tensor
from formats.errors import CorruptError


@dataclass(frozen=True, slots=True)
class Strings:
    """A tensor of byte strings.

    Attributes:
        shape: Sizes of the axes.
        data: All strings, one after the other: a uint8 tensor of one axis.
        offsets: Where each begins in ``data``, and where the last one ends: int64.
        origin: As `Tensor.origin`.
    """

    shape: tuple[int, ...]
    data: Tensor
    offsets: Tensor
    origin: str = ""

    @classmethod
    def stored(
        cls, shape: Sequence[int], lengths: Sequence[int], run: Span, *, origin: str = ""
    ) -> "Strings":
        """Return the strings of ``lengths`` bytes each that fill ``run``.

        Raises:
            CorruptError: They are not as many as the shape wants, or of another total length.
        """
        if len(lengths) != prod(shape) or sum(lengths) != run.length:
            raise CorruptError(
                f"{len(lengths)} strings of {sum(lengths)} bytes in {run.length} bytes do not "
                f"make a string tensor of shape {list(shape)}",
                where=origin or run.name,
            )
        data = Tensor.contiguous(DTYPES["uint8"], (run.length,), run, origin=origin)
        return cls(tuple(shape), data, _offsets(lengths, origin), origin)

    @classmethod
    def of(cls, shape: Sequence[int], values: Iterable[bytes], *, origin: str = "") -> "Strings":
        """Return strings that are in memory; the last one is repeated to fill the shape.

        Raises:
            CorruptError: There are more than the shape wants.
        """
        values = list(values)
        count = prod(shape)
        if len(values) > count:
            raise CorruptError(
                f"{len(values)} strings do not fit shape {list(shape)}", where=origin or None
            )
        text = b"".join(values)
        lengths = [len(v) for v in values]
        missing = count - len(values)
        if not missing:
            data = Tensor.inline(DTYPES["uint8"], (len(text),), text, origin=origin)
            return cls(tuple(shape), data, _offsets(lengths, origin), origin)
        # Few bytes may stand for very many strings: these are made when they are walked.
        last = values[-1] if values else b""
        total = len(text) + missing * len(last)

        def repeated() -> Iterator[bytes]:
            yield text
            at_once = max(1, CHUNK // max(1, len(last)))
            for start in range(0, missing if last else 0, at_once):
                yield last * min(at_once, missing - start)

        def ends() -> Iterator[bytes]:
            yield array("q", accumulate(lengths, initial=0)).tobytes()
            for start in range(0, missing, CHUNK):
                stop = min(start + CHUNK, missing)
                some = (len(text) + (n + 1) * len(last) for n in range(start, stop))
                yield array("q", some).tobytes()

        data = Tensor.computed(DTYPES["uint8"], (total,), repeated, origin=origin)
        offsets = Tensor.computed(DTYPES["int64"], (count + 1,), ends, origin=origin)
        return cls(tuple(shape), data, offsets, origin)

    def values(self) -> list[bytes]:
        """Return all strings, row-major."""
        data, offsets = self.data.tobytes(), array("q", self.offsets.tobytes())
        return [data[a:b] for a, b in pairwise(offsets)]

    def describe_encoding(self, data_name: str, offsets_name: str) -> Encoding:
        """Return how the two tensors, under these names, make up the logical one."""
        parts = {"bytes": data_name, "offsets": offsets_name}
        return Encoding("string", "string", self.shape, parts)


def _offsets(lengths: Sequence[int], origin: str) -> Tensor:
    numbers = array("q", accumulate(lengths, initial=0))
    return Tensor.inline(DTYPES["int64"], (len(numbers),), numbers.tobytes(), origin=origin)
