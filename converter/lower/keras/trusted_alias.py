"""``import keras`` as code of Keras 1 and 2 means it: tf_keras, under the names of old.

Only a child that runs such code installs this, and only where today's Keras does not do.
"""

import importlib.util
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

# What lay elsewhere then; what these had is among the layers now.
GONE = (
    "keras.engine", "keras.engine.topology", "keras.engine.base_layer", "keras.engine.training",
    "keras.legacy", "keras.legacy.layers",
)  # fmt: skip
OLD_LAYERS = "keras.layers."  # keras.layers.core, keras.layers.recurrent


class AsKeras(MetaPathFinder, Loader):
    """Finds the modules of tf_keras where keras is asked for."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return where a module of Keras's is."""
        del path, target
        if fullname.split(".")[0] != "keras":
            return None
        return importlib.util.spec_from_loader(fullname, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return a module that has what tf_keras's has.

        Raises:
            ModuleNotFoundError: There is no such module.
        """
        made = ModuleType(spec.name)
        for name, value in _content(spec.name).items():
            if not name.startswith("__") or name == "__version__":
                made.__dict__[name] = value
        return made

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing: all is there."""
        del module


def _content(name: str) -> dict[str, Any]:
    rest = name.removeprefix("keras")
    for place in (f"tf_keras{rest}", f"tf_keras.src{rest}"):
        try:
            return dict(vars(import_module(place)))
        except ModuleNotFoundError:
            continue
    if name in GONE or name.startswith(OLD_LAYERS):
        keras = import_module("tf_keras")
        return {**vars(keras.layers), "Model": keras.Model, "Network": keras.Model}
    raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def install() -> None:
    """Have ``import keras`` mean tf_keras from here on."""
    for name in [n for n in sys.modules if n.split(".")[0] == "keras"]:
        del sys.modules[name]
    sys.meta_path.insert(0, AsKeras())
