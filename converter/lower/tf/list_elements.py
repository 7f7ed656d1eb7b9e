"""What a loop learns of its lists while its body is built: that one is read, or what it holds."""

from converter.lower.graph import Shape
from converter.lower.tf.program_values import Stack


class ListRead(Exception):  # noqa: N818 - a turn, and no error
    """A list that was taken to be only written is read."""

    def __init__(self, loop: object, number: int, element: Shape | None) -> None:
        super().__init__(f"list {number}")
        self.loop, self.number, self.element = loop, number, element


class ElementFound(Exception):  # noqa: N818 - a turn, and no error
    """A list that is looked at for its elements gets one."""

    def __init__(self, loop: object, number: int, element: Shape) -> None:
        super().__init__(f"list {number}")
        self.loop, self.number, self.element = loop, number, element


def merge_shapes(a: Shape | None, b: Shape | None) -> Shape | None:
    """Return what two descriptions of one shape say together."""
    if a is None or b is None or len(a) != len(b):
        return b if a is None else a
    return tuple(m if isinstance(m, int) or n is None else n for m, n in zip(a, b, strict=True))


def read_inside(stack: Stack, element: Shape | None = None) -> None:
    """Say that a list is read: where it is a loop's, it must be carried as a whole.

    Args:
        stack: The list.
        element: What is known of an element's shape, beside what the list says.
    """
    element = merge_shapes(stack.element, element)
    if stack.sought:
        if element is not None and None not in element:
            report_element(stack, element)
    elif stack.loop is not None:
        raise ListRead(*stack.loop, element)


def report_element(stack: Stack, element: Shape) -> None:
    """Say what the elements of a list are like."""
    assert stack.loop is not None
    raise ElementFound(*stack.loop, element)
