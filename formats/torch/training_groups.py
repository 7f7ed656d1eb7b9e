"""Which part of training a value of a checkpoint belongs to, as its key and its class say.

Checkpoints put optimizers, schedulers, scalers and random states beside the model, under names
that trainers agree on; what none of these rules know is the model's.
"""

import re

from formats.containers.pickle.values import Record
from formats.core.bundle import Group
from formats.torch.pickled_values import state_dict
from formats.torch.tensor_values import TensorValue

OPTIMIZER_KEY = re.compile(r"optim|^opt$|^opt_|_opt$", re.IGNORECASE)
RANDOM_KEY = re.compile(r"(^|_)rngs?(_|$)|random_state|rng_state", re.IGNORECASE)
TRAINING_KEY = re.compile(
    r"(^|_)rngs?(_|$)|random_state|rng_state|loss_scal|grad_scaler|(^|_)sched|scheduler|"
    r"^amp(_scaling_state|_scaler|_state)?$|^native_amp",
    re.IGNORECASE,
)
LIGHTNING_KEYS = frozenset({"callbacks", "loops", "lr_schedulers", "native_amp_scaling_state"})


def find_group(key: str, value: object, owner: object) -> Group | None:
    """Return the group of a container under ``key`` of ``owner``; None for the model itself."""
    if isinstance(value, Record):
        if "lr_scheduler" in value.cls or "GradScaler" in value.cls:
            return "training"
        if value.cls.startswith(("numpy.random.", "random.", "torch.Generator")):
            return "training"
        if value.cls.startswith("torch.optim.") or "param_groups" in state_dict(value):
            return "optimizer"
    if isinstance(value, dict):
        if "param_groups" in value and "state" in value:
            return "optimizer"
        if "growth_factor" in value and "scale" in value:
            return "training"
        if "python" in value and "numpy" in value and ("cpu" in value or "torch" in value):
            return "training"  # the random state of every library
    if TRAINING_KEY.search(key):
        return "training"
    if OPTIMIZER_KEY.search(key):
        return "optimizer"
    if key in LIGHTNING_KEYS and isinstance(owner, dict):
        return "training" if "pytorch-lightning_version" in owner else None
    return None


def find_group_of_name(name: str) -> Group | None:
    """Return the group of a flat name, by its first part; None for the model itself."""
    first = name.split(".", 1)[0]
    if OPTIMIZER_KEY.search(first):
        return "optimizer"
    return "training" if TRAINING_KEY.search(first) else None


def is_random_state(key: str, value: TensorValue) -> bool:
    """Return whether a tensor is the state of a random generator: bytes under such a key."""
    is_bytes = value.type is not None and value.type.name == "uint8"
    return is_bytes and RANDOM_KEY.search(key) is not None
