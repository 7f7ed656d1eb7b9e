"""Keras models in memory: a Sequential of given entries and weights."""

from formats.core.bundle import Bundle, Metadata, Topology
from formats.core.weights import DTYPES, Tensor


def entry(kind, name, **config):
    return {"class_name": kind, "config": {"name": name, **config}}


def bundle(*layers, shape=(None, 3), weights=None, version="2.9.0"):
    first = entry("InputLayer", "x", batch_input_shape=list(shape), dtype="float32")
    config = {"class_name": "Sequential", "config": {"name": "m", "layers": [first, *layers]}}
    metadata = Metadata("keras", "archive", framework="keras", recorded={"keras_version": version})
    tensors = {
        name: Tensor.inline(DTYPES[a.dtype.name], a.shape, a.tobytes())
        for name, a in (weights or {}).items()
    }
    return Bundle(metadata, tensors, topology=Topology("keras_config", {}, config))
