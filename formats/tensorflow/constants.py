"""Constants of a TensorFlow graph that are weights.

Without variables beside them, all are. With variables, those of more than 16 elements: smaller
ones (axes, shapes, paths) are the graph's business and stay in it, as do initial values of
variables and the lists of names that Save and Restore take. A constant that is the same in several
meta graphs comes out once.
"""

import re
from collections.abc import Sequence

from formats.core.bundle import LeftOut
from formats.core.collector import Collector
from formats.core.strings import Strings
from formats.tensorflow.graph_summary import Constant, Survey, add_constant, element_count, value_of

_SMALL = 16  # elements; up to so many, a constant is an axis, a scale or an epsilon
_COMPARED = 1 << 26  # bytes of constants of one name in several MetaGraphs that are compared
_MACHINERY = re.compile(
    r"__inference__traced_(save|restore)_\d+/|(.*/)?(SaveV2|RestoreV2|SaveSlices|RestoreSlice)(_\d+)?/"
)
_INITIAL = re.compile(r"(^|/)(Initializer|initial_value|Initializer_\d+|initializers?)(/|$)")


def gather_constants(
    surveys: Sequence[tuple[str, Survey]], collector: Collector, *, in_front: str
) -> list[LeftOut]:
    """Give the constants that count as weights to ``collector``; return the others, named.

    Args:
        surveys: Of each meta graph, by its tags.
        collector: Takes them.
        in_front: What names begin with; "" where there are no variables, and all constants count.
    """
    small = initial = machinery = 0
    by_name: dict[str, list[tuple[str, Constant]]] = {}
    for tags, facts in surveys:
        for constant in facts.constants:
            if _MACHINERY.match(constant.name):
                machinery += 1
            elif in_front and element_count(constant) <= _SMALL:
                small += 1
            elif in_front and _INITIAL.search(constant.name):
                initial += 1
            else:
                by_name.setdefault(constant.name, []).append((tags, constant))
    budget = _COMPARED
    for name, ((tags, first), *others) in by_name.items():
        add_constant(first, collector, [f"{in_front}{name}", f"{in_front}{tags}/{name}"])
        for tags, constant in others:
            cost = _comparable(first, constant)
            budget -= cost
            if not cost or budget < 0 or not _are_equal(first, constant):
                add_constant(constant, collector, [f"{in_front}{tags}/{name}"])
    left_out = []
    if small:
        name = f"{small} constant{'s' * (small > 1)} of at most {_SMALL} elements"
        left_out.append(LeftOut(name, "part of the graph, not weights"))
    if machinery:
        name = f"{machinery} constant{'s' * (machinery > 1)} of saving and restoring"
        left_out.append(LeftOut(name, "part of the graph, not of the model"))
    if initial:
        name = f"{initial} initial value{'s' * (initial > 1)} of variables"
        left_out.append(LeftOut(name, "the variables have their trained values"))
    return left_out


def _comparable(a: Constant, b: Constant) -> int:
    """Return how many bytes comparing two constants takes; zero if they cannot be equal."""
    x, y = value_of(a), value_of(b)
    if isinstance(x, Strings) or isinstance(y, Strings):
        return 0
    return x.nbytes + 1 if (x.dtype, x.shape) == (y.dtype, y.shape) else 0


def _are_equal(a: Constant, b: Constant) -> bool:
    x, y = value_of(a), value_of(b)
    return not isinstance(x, Strings) and not isinstance(y, Strings) and x.tobytes() == y.tobytes()
