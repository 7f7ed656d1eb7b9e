"""Prefixes of names: which are removed, which stay, and that the changes are counted."""

import pytest

from converter.normalise.prefixes import strip_prefixes
from formats.core.bundle import Bundle, Encoding, Metadata
from formats.core.weights import DTYPES, Tensor
from formats.errors import UsageError


def tensor(origin):
    return Tensor.inline(DTYPES["uint8"], (1,), origin[:1].encode(), origin=origin)


def bundle(origins, *, framework="torch", recorded=None, **more):
    """Names follow from origins: "/" between dict keys, "." elsewhere."""
    weights = {
        ".".join(p for p in o.split("/") if p not in ("_modules", "_parameters")): tensor(o)
        for o in origins
    }
    metadata = Metadata("torch", "test", framework=framework, recorded=recorded or {})
    return Bundle(metadata, weights, **more)


LIGHTNING = {"pytorch-lightning_version": "2.0.0"}


@pytest.mark.parametrize(
    ("origins", "recorded", "names"),
    [
        (["module.a.w", "module.b"], {}, ["a.w", "b"]),
        (["module.a.w", "head.b"], {}, ["module.a.w", "head.b"]),
        (["module.module.a", "module.module.b"], {}, ["a", "b"]),
        (["_orig_mod.a.w", "_orig_mod.b"], {}, ["a.w", "b"]),
        (["enc._orig_mod.a", "dec.b"], {}, ["enc.a", "dec.b"]),
        (["module._orig_mod.a", "module._orig_mod.b"], {}, ["a", "b"]),
        (["_fsdp_wrapped_module.a._checkpoint_wrapped_module.w"], {}, ["a.w"]),
        (["model.0.w", "model.1.w"], {}, ["model.0.w", "model.1.w"]),
        (["model/0.w", "model/1.w"], {}, ["0.w", "1.w"]),
        (["state_dict/model.0.w", "state_dict/model.1.w"], LIGHTNING, ["0.w", "1.w"]),
        (["state_dict/model.0.w", "state_dict/head.w"], LIGHTNING, ["model.0.w", "head.w"]),
        (["state_dict/module.a", "state_dict/module.b"], {}, ["a", "b"]),
        (["hyper/head/w", "state_dict/module.a"], {}, ["hyper.head.w", "a"]),
        (["model/a", "ema/a"], {}, ["a", "ema.a"]),
        (["model/a", "net/a"], {}, ["model.a", "net.a"]),
        (["model/a", "a"], {}, ["model.a", "a"]),
        (["model/_modules/fc/_parameters/w"], {}, ["fc.w"]),
        (["generator/a", "discriminator/a"], {}, ["generator.a", "discriminator.a"]),
        (["state/model/a", "state/model/b"], {}, ["state.model.a", "state.model.b"]),
        (["module"], {}, ["module"]),
        (["module.a", "module._orig_mod.a"], {}, ["a", "_orig_mod.a"]),
    ],
    ids=str,
)
def test_auto(origins, recorded, names):
    before = bundle(origins, recorded=recorded)
    after = strip_prefixes(before)
    assert list(after.weights) == names
    assert [t.origin for t in after.weights.values()] == origins
    changed = [n for n in after.metadata.normalisations if n.count]
    assert bool(changed) == (list(before.weights) != list(after.weights))


def test_only_torch_has_wrappers():
    keras = bundle(["model.w"], framework="keras")
    assert list(strip_prefixes(keras).weights) == ["model.w"]


def test_rule_none_and_an_explicit_prefix():
    source = bundle(["module.a", "module.b", "c"])
    assert list(strip_prefixes(source, "none").weights) == ["module.a", "module.b", "c"]
    stripped = strip_prefixes(source, "module.")
    assert list(stripped.weights) == ["a", "b", "c"]
    assert stripped.metadata.normalisations[0].count == 2
    with pytest.raises(UsageError, match=r"strip_prefix='absent\.', and no tensor has"):
        strip_prefixes(source, "absent.")


def test_encodings_are_renamed_with_their_tensors():
    source = bundle(
        ["module.w", "module.w.scale"],
        encodings={
            "module.w": Encoding(
                "quantized", "qint8", (1,), {"int": "module.w", "scale": "module.w.scale"}
            )
        },
    )
    found = strip_prefixes(source).encodings
    assert found["w"].parts == {"int": "w", "scale": "w.scale"}
