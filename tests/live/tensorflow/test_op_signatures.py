"""Handlers of TensorFlow's ops have the arguments, defaults and outputs of their definitions."""

import inspect

import pytest

from converter.lower.tf.table import IGNORED, OPS


@pytest.fixture(scope="module")
def definitions():
    """Return TensorFlow's own definitions of its ops."""
    pytest.importorskip("tensorflow")
    from tensorflow.python.framework import op_def_registry

    return op_def_registry


# Attributes that only say how many tensors there are, or of which type: the tensors tell.
COUNTS = frozenset(("N", "num", "num_split", "num_partitions", "num_outs"))


@pytest.mark.parametrize("op", sorted(OPS))
def test_handlers_are_signed_as_ops_are_defined(definitions, op):
    definition = definitions.get(op)
    if definition is None:
        pytest.skip(f"TensorFlow of today has no {op}")
    row = OPS[op]
    parameters = inspect.signature(row.function).parameters
    named = [parameters[name] for name in row.arguments if name != "node"]
    keywords = {p.name: p.default for p in named if p.kind is p.KEYWORD_ONLY}
    attributes = {a.name: a for a in definition.attr}
    shared = [o for o in OPS if OPS[o].function is row.function and definitions.get(o) is not None]
    known = {a.name for o in shared for a in definitions.get(o).attr}
    assert set(keywords) <= known, "an attribute that none of the handler's ops has"
    for name, attribute in attributes.items():
        if attribute.type in ("type", "list(type)") or name in COUNTS or name in IGNORED:
            continue
        assert name in row.arguments, f"attribute {name} is in no signature"
        if name not in keywords:
            continue
        if attribute.HasField("default_value"):
            default = keywords[name]
            assert default is not inspect.Parameter.empty, f"attribute {name} has a default"
            assert same(attribute.default_value, default), f"the default of {name}"
    outputs = tuple(a.name for a in definition.output_arg)
    if len(outputs) > 1:
        assert tuple(name.partition("*")[0] for name in row.outputs) == outputs


def same(proto, default):
    """Tell whether a default is TensorFlow's; shapes, types and functions are left out."""
    kind = proto.WhichOneof("value")
    if kind in ("i", "b", "f"):
        value = getattr(proto, kind)
        return default == pytest.approx(value)
    if kind == "s":
        return default == proto.s.decode()
    if kind == "list":
        values = [*proto.list.i, *proto.list.f, *proto.list.b, *(s.decode() for s in proto.list.s)]
        return default is None or list(default) == values  # None: the handler knows
    return True
