"""Stands in for torchvision beside a build of torch that PyPI's torchvision does not fit.

timm imports torchvision for transforms of images and for data sets, which no model of timm calls.
The folder of this file goes to PYTHONPATH where there is no torchvision.
"""

import sys
from enum import Enum
from types import ModuleType

__path__: list[str] = []  # this is a package, whose modules are made below


class InterpolationMode(Enum):
    NEAREST, BILINEAR, BICUBIC, BOX, HAMMING, LANCZOS = range(6)


class StandIn(ModuleType):
    """A module in which every name is a class of its own."""

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        made = type(name, (), {})
        setattr(self, name, made)
        return made


for path in ("datasets", "ops", "ops.misc", "transforms", "transforms.functional", "utils"):
    module = sys.modules[f"torchvision.{path}"] = StandIn(f"torchvision.{path}")
    parent, _, own = f"torchvision.{path}".rpartition(".")
    setattr(sys.modules[parent], own, module)
sys.modules["torchvision.transforms.functional"].InterpolationMode = InterpolationMode
