"""Walks the steps of a Lambda's function, as far as they need no tensor's content.

Every name stays a name (`Named`), every tensor a `Value` of the graph that is built on the way:
what the code would do to them is looked up in our own tables (`Names`). Loops over what is known
are unrolled; branches are taken where the condition is known.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from converter.lower.keras import lambda_values as v
from converter.lower.keras.lambda_protocols import Meaning
from converter.lower.keras.lambda_steps import call_function
from converter.lower.keras.lambda_values import Closure
from converter.lower.unsupported import Unsupported
from formats.core.plurals import count

# Of all the Lambdas of a model together.
MOST_STEPS = 400_000
MOST_COUNTED = 8_000_000  # elements of lists that steps have been given
MOST_CALLS = 40  # inside one another


class Machine:
    """The interpretation of a function and of all that it calls."""

    def __init__(self, meaning: Meaning, spent: v.Budget) -> None:
        self.meaning = meaning
        self.spent = spent
        self.depth = 0

    def walk(self, function: Closure, given: Sequence[Any], named: Mapping[str, Any]) -> Any:
        """Call the function that a layer is.

        Raises:
            Unsupported: It does what we do not, or what Python itself refuses.
        """
        try:
            with np.errstate(all="ignore"):
                result = self.call(function, given, named)
                self.spend(result)
        except (*v.FAULTS, ArithmeticError, RuntimeError) as e:
            raise v.fault("its code", e) from e
        return result

    def call(
        self, callee: Any, given: Sequence[Any] = (), named: Mapping[str, Any] | None = None
    ) -> Any:
        """Call something with arguments by position and by name.

        Raises:
            Unsupported: It cannot be called, or does what we do not.
        """
        for part in (*given, *(named or {}).values()):
            self.spend(part)
        if not isinstance(callee, Closure):
            result = self.meaning.call(self, callee, list(given), dict(named or {}))
            if isinstance(result, np.ndarray):
                self.spend(result)
            return result
        if self.depth >= MOST_CALLS:
            raise Unsupported(f"more than {MOST_CALLS} calls inside one another")
        self.depth += 1
        try:
            return call_function(self, callee, bound(callee, given, named or {}))
        finally:
            self.depth -= 1

    def step(self) -> None:
        """Count a step.

        Raises:
            Unsupported: It is one too many.
        """
        self.spent.steps += 1
        if self.spent.steps > MOST_STEPS:
            raise Unsupported(f"more than {MOST_STEPS} steps of its code")

    def spend(self, value: Any) -> None:
        """Count the elements of a list that something is about to go through.

        Raises:
            Unsupported: They are too many.
        """
        self.spent.counted += v.count(value)
        if self.spent.counted > MOST_COUNTED:
            raise Unsupported(f"more than {MOST_COUNTED} elements in all")


def bound(function: Closure, given: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a function by name, as a call has them.

    Raises:
        Unsupported: The call does not fit.
    """
    code = function.code
    found: dict[str, Any] = dict(zip(code.positional, given, strict=False))
    left = given[len(code.positional) :]
    if code.rest is not None:
        found[code.rest] = tuple(left)
    elif left:
        raise Unsupported(
            f"{count('argument', len(given))} for {code.name}, which takes {len(code.positional)}"
        )
    others: dict[str, Any] = {}
    for name, value in named.items():
        known = name in code.positional[code.positional_only :] or name in code.keyword_only
        if known and name not in found:
            found[name] = value
        elif code.keywords is not None and not known:
            others[name] = value
        else:
            raise Unsupported(f"argument {name} for {code.name}")
    if code.keywords is not None:
        found[code.keywords] = others
    with_default = code.positional[len(code.positional) - len(function.defaults) :]
    defaults = dict(zip(with_default, function.defaults, strict=False))
    for name in (*code.positional, *code.keyword_only):
        if name in found:
            continue
        if name in defaults:
            found[name] = defaults[name]
        elif name in function.keyword_defaults:
            found[name] = function.keyword_defaults[name]
        else:
            raise Unsupported(f"no argument {name} for {code.name}")
    return found
