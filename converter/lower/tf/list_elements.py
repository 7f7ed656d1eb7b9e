"""Signals to a loop whose body is being built: a list is read, or gets an element."""

from converter.lower.graph import Shape
from converter.lower.tf.program_values import Stack


class ListRead(Exception):  # noqa: N818 - control flow, not an error
    """A list that was assumed to be only written is read."""

    def __init__(self, loop: object, number: int, element: Shape | None) -> None:
        super().__init__(f"list {number}")
        self.loop, self.number, self.element = loop, number, element


class ElementFound(Exception):  # noqa: N818 - control flow, not an error
    """A list whose element shape is sought gets an element."""

    def __init__(self, loop: object, number: int, element: Shape) -> None:
        super().__init__(f"list {number}")
        self.loop, self.number, self.element = loop, number, element


def merge_shapes(a: Shape | None, b: Shape | None) -> Shape | None:
    """Merge two partly known descriptions of the same shape."""
    if a is None or b is None or len(a) != len(b):
        return b if a is None else a
    return tuple(m if isinstance(m, int) or n is None else n for m, n in zip(a, b, strict=True))


def read_inside(stack: Stack, element: Shape | None = None) -> None:
    """Signal that a list is read: a loop must carry such a list as a whole.

    Args:
        stack: The list.
        element: Shape of an element, merged with the one that the list has.
    """
    element = merge_shapes(stack.element, element)
    if stack.sought:
        if element is not None and None not in element:
            report_element(stack, element)
    elif stack.loop is not None:
        raise ListRead(*stack.loop, element)


def report_element(stack: Stack, element: Shape) -> None:
    """Signal the shape of the elements of a list."""
    assert stack.loop is not None
    raise ElementFound(*stack.loop, element)
