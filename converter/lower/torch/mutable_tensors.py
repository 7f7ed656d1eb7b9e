"""Tensors as torch programs have them: names of storages that may be written to.

A view (`x[:, 0]`, `x.transpose(1, 2)`) and what it is a view of show the same elements: writing
through one changes the other. A graph shares no memory. Here a storage has its latest value, and a
view is made anew from that once it has changed; writing through a view writes what it shows back
into its base (`converter.lower.torch.views`).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace

from converter.lower.unsupported import Unsupported
from converter.lower.values import Value

Write = Callable[[Value, Value], Value]  # base, what its view is now -> base as it is then


@dataclass(slots=True, eq=False)
class Storage:
    """The current elements of a tensor that may be written in place.

    Attributes:
        value: The elements.
        version: Number of writes so far.
        is_in_doubt: Whether something was written that torch may or may not have put here.
    """

    value: Value
    version: int = 0
    is_in_doubt: bool = False


@dataclass(slots=True, eq=False)
class Reference:
    """A tensor of the program.

    Attributes:
        storage: That it is of.
        base: The tensor that it is a view of; None for the whole storage.
        view: Makes it from the base's value.
        write: Writes it back into the base's value; None where that cannot be done here.
        is_contiguous: Whether its elements lie in order, so that a reshape of it is a view.
        is_doubtful: Whether torch might have copied it: then nothing can be written through it
            (but see `part`), nor may what it was made from change before it is read.
    """

    storage: Storage
    base: "Reference | None" = None
    view: Callable[[Value], Value] | None = None
    write: Write | None = None
    is_contiguous: bool = True
    is_doubtful: bool = False
    _seen: tuple[int, Value] | None = field(default=None, repr=False)

    @classmethod
    def to(cls, value: Value, *, is_contiguous: bool = True) -> "Reference":
        """Return a tensor with a storage of its own."""
        return cls(Storage(value), is_contiguous=is_contiguous)

    def viewed(
        self, now: Value, view: Callable[[Value], Value], write: Write | None, *,
        is_contiguous: bool, is_doubtful: bool = False,
    ) -> "Reference":  # fmt: skip
        """Return a view of this tensor, whose value now is known."""
        seen = (self.storage.version, now)
        doubtful = is_doubtful or self.is_doubtful
        return Reference(self.storage, self, view, write, is_contiguous, doubtful, seen)

    def read(self) -> Value:
        """Return the tensor's value at present.

        Raises:
            Unsupported: Whether torch shows here what was written elsewhere is not known.
        """
        if self.storage.is_in_doubt:
            raise Unsupported("a tensor that may share memory with one that was changed")
        if self.base is None or self.view is None:
            return self.storage.value
        if self._seen is not None and self._seen[0] == self.storage.version:
            return self._seen[1]
        if self.is_doubtful:
            raise Unsupported("a tensor that may share memory with one that was changed")
        made = self.view(self.base.read())
        self._seen = (self.storage.version, made)
        return made

    def copied(self) -> "Reference":
        """Return another name of the same elements."""
        return replace(self)

    def become(self, other: "Reference") -> None:
        """Be another name of another tensor's elements from now on."""
        for field_ in fields(self):
            setattr(self, field_.name, getattr(other, field_.name))

    def set_value(self, value: Value) -> None:
        """Note the same value, with a shape that says more."""
        if self.base is None:
            self.storage.value = value
        else:
            self._seen = (self.storage.version, value)

    def part(self) -> None:
        """Have a storage of its own, as a copy would; what it was made from is in doubt."""
        value = self.read()
        self.storage.is_in_doubt = True
        self.become(Reference.to(value))

    def assign(self, value: Value) -> None:
        """Write the tensor's elements, all of them.

        Raises:
            Unsupported: It is a view that cannot be written through.
        """
        if self.base is None:
            self.storage.value = value
            self.storage.version += 1
            return
        if self.is_doubtful or self.write is None:
            raise Unsupported("an operation in place, on a view that cannot be written through")
        self.base.assign(self.write(self.base.read(), value))


def find_written(tensors: Mapping[str, Reference]) -> list[str]:
    """Return the names of tensors that the program has written to."""
    return [name for name, reference in tensors.items() if reference.storage.version]
