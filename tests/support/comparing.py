"""Options of a comparison, given flat: what tests of the verification vary."""

from dataclasses import fields
from typing import Any

from converter.options import Comparison, Options

NESTED = {field.name for field in fields(Comparison)}


def comparing(**given: Any) -> Options:
    """Return options whose comparison has the given tolerances, inputs, seed, …; others as usual.

    With a device, the comparison is asked to run there.
    """
    nested = {name: value for name, value in given.items() if name in NESTED}
    other = {name: value for name, value in given.items() if name not in NESTED}
    if "device" in other:
        other.setdefault("verify", "device")
    return Options(comparison=Comparison(**nested), **other)
