"""Compares bundles with what the frameworks read, as the fixtures' .expected.npz store it."""

from array import array
from itertools import pairwise

import numpy as np


def stored(path):
    """Return key → (dtype, shape, bytes) from an .expected.npz."""
    found = {}
    with np.load(path) as arrays:
        for key in arrays:
            name, _, kind = key.partition("|")
            value = arrays[key]
            if kind == "strings":
                text = arrays[f"{name}|bytes"].tobytes()
                shape = tuple(arrays[f"{name}|shape"].tolist())
                found[name] = ("string", shape, value.tobytes() + text)
            elif kind not in ("bytes", "shape"):
                found[name] = (kind or value.dtype.name, value.shape, value.tobytes())
    return found


def read(bundle, by):
    """Return the same of a bundle; ``by`` is "origin" or "name"."""
    tensors = dict(bundle.weights)
    for group in bundle.leftovers.values():
        assert not tensors.keys() & group.keys()
        tensors.update(group)
    found, parts = {}, set()
    for name, encoding in bundle.encodings.items():
        if encoding.kind != "string":
            continue
        data, offsets = (tensors[encoding.parts[p]] for p in ("bytes", "offsets"))
        numbers = array("q", offsets.tobytes())
        lengths = array("q", (b - a for a, b in pairwise(numbers)))
        key = name if by == "name" else data.origin
        found[key] = ("string", encoding.shape, lengths.tobytes() + data.tobytes())
        parts |= set(encoding.parts.values())
    for name, tensor in tensors.items():
        if name in parts:
            continue
        note = bundle.metadata.tensor_notes.get(name, {})
        key = name if by == "name" else tensor.origin
        value = tensor.numpy()
        assert value.shape == tensor.shape
        found[key] = (tensor.dtype.name, tensor.shape, value.tobytes())
        for other in note.get("also_stored_as", ()):
            found[other] = found[key]
    return found
