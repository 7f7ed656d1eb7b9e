"""Traces of the user's own layers and functions, and the tensors that are their weights."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from converter.lower.keras.model import Model
from converter.lower.keras.table import Unsupported
from formats.core.weights import Tensor


@dataclass(frozen=True, slots=True)
class TracedWeight:
    """A variable of a traced layer.

    Attributes:
        path: Names of the layers inside it and the variable's own.
        stored: Where a weight store of Keras 3 has it, below the layer.
        shape: Its shape.
        input: The input of the model that it is, where the layer itself uses it.
        dtype: Dtype of that input.
        layer: The layer of the model that it belongs to, where one does.
        role: Its name there.
    """

    path: str
    stored: str | None
    shape: Sequence[int]
    input: str | None
    dtype: str | None
    layer: str | None
    role: str | None


@dataclass(frozen=True, slots=True)
class Traced:
    """The trace of a layer's class.

    Attributes:
        model: Its inputs are the tensors, their masks, and weights; its outputs the layer's, then
            masks.
        outputs: Number of outputs that are the layer's, without masks.
        masks: Whether each of these outputs has a mask.
        names: Names of the outputs, where they have any.
        weights: All weights of the layer, in the order in which Keras saves them.
    """

    model: Model
    outputs: int
    masks: Sequence[bool]
    names: Sequence[str]
    weights: Sequence[TracedWeight]


def match_variables(
    weights: Sequence[TracedWeight], own: Mapping[str, str], tensors: Mapping[str, Tensor]
) -> list[str]:
    """Return the tensor of each variable of a layer: by position, by name, or by order.

    Args:
        weights: The variables.
        own: Tensors that are the layer's by their names: role → name.
        tensors: All there are.

    Raises:
        Unsupported: They are not the layer's.
    """
    by_name = [own.get(w.path, "") for w in weights]
    ways = [
        _by_place([w.stored or "" for w in weights], own, tensors),  # .keras and .weights.h5
        _by_place([w.path for w in weights], own, tensors),  # .h5
        by_name if set(by_name) == set(own.values()) else [],
        list(own.values()),
    ]
    for found in ways:
        if len(found) == len(set(found)) == len(weights) and all(
            name in tensors and tuple(tensors[name].shape) == tuple(w.shape)
            for name, w in zip(found, weights, strict=True)
        ):
            return found
    have = ", ".join(f"{role} {list(tensors[n].shape)}" for role, n in own.items()) or "none"
    want = ", ".join(f"{w.path} {list(w.shape)}" for w in weights) or "none"
    raise Unsupported(f"its class has the weights {want}, and the source {have}")


def _by_place(
    places: Sequence[str], own: Mapping[str, str], tensors: Mapping[str, Tensor]
) -> list[str]:
    """Return the tensors at these positions in the layer's group.

    None are returned unless they are all that there are: a model inside the layer may be named as
    if it were on its own, but lies with it.
    """
    by_origin = {tensor.origin: name for name, tensor in tensors.items()}
    for first in own.values():
        origin = tensors[first].origin
        for place in places:
            head = origin.removesuffix(f"/{place}")
            if not place or head == origin:
                continue
            inside = {o: name for o, name in by_origin.items() if o.startswith(f"{head}/")}
            if set(inside) == {f"{head}/{p}" for p in places}:
                return [inside[f"{head}/{p}"] for p in places]
    return []
