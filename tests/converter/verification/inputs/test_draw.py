"""The inputs a model is tried with: seeded, and such as its layers are made for."""

import numpy as np
import pytest

from converter.lower.keras.model import parse
from converter.verification.inputs.draw import (
    Hint,
    cases_from_file,
    draw_array,
    find_hints,
    plan_cases,
)
from formats.core.bundle import TensorSpec
from formats.errors import UsageError


def sequential(*layers, shape=(None, 4), dtype="float32"):
    first = {"class_name": "InputLayer",
             "config": {"name": "x", "batch_shape": list(shape), "dtype": dtype}}  # fmt: skip
    entries = [
        {"class_name": kind, "config": {"name": f"l{i}", **config}}
        for i, (kind, config) in enumerate(layers)
    ]
    return {"class_name": "Sequential", "config": {"name": "m", "layers": [first, *entries]}}


def hint_of(*layers):
    (found,) = find_hints(parse(sequential(*layers))).values()
    return found


IMAGE = TensorSpec("image", "float32", ("batch", "image_1", "image_2", 3))
TOKENS = TensorSpec("tokens", "int32", ("batch", "tokens_1"))
TABLE = TensorSpec("table", "float32", ("batch", 7))


def shapes(cases):
    return [[tuple(a.shape for a in c.arrays) for c in alternatives] for alternatives in cases]


def test_two_batch_sizes():
    cases = plan_cases([TABLE], [Hint()], seed=0)
    assert shapes(cases) == [[((1, 7),)], [((3, 7),)]]


def test_free_sizes_are_two_and_differ_from_axis_to_axis():
    first, second = shapes(plan_cases([IMAGE], [Hint()], seed=0))
    (n, h, w, c), (m, i, j, d) = first[0][0], second[0][0]
    assert (n, m, c, d) == (1, 3, 3, 3)
    assert len({h, w}) == len({i, j}) == len({h, i}) == len({w, j}) == 2
    assert len(first) > 1  # for models that take only others


def test_axes_of_one_name_have_one_size():
    specs = [TensorSpec("a", "float32", ("n", "t", 2)), TensorSpec("b", "float32", ("n", 5, "t"))]
    for alternatives in shapes(plan_cases(specs, [Hint(), Hint()], seed=0)):
        for a, b in alternatives:
            assert (a[0], a[1]) == (b[0], b[2])


def test_an_axis_that_two_others_make_has_their_sizes_together():
    specs = [
        TensorSpec("mask", "int64", ("batch", "past + new")),
        TensorSpec("tokens", "int64", ("batch", "new")),
        TensorSpec("cache", "float32", ("batch", 4, "past", 8)),
    ]
    for alternatives in shapes(plan_cases(specs, [Hint()] * 3, seed=0)):
        for mask, tokens, cache in alternatives:
            assert mask[1] == tokens[1] + cache[2]


def test_sizes_of_an_axis_are_the_multiples_that_its_name_says():
    spec = TensorSpec("audio", "float32", ("batch", "40*samples"))
    sizes = {shape[1] for case in shapes(plan_cases([spec], [Hint()], seed=0)) for (shape,) in case}
    assert len(sizes) > 1
    assert not any(n % 40 for n in sizes)


def test_a_model_of_fixed_sizes_has_one_case():
    assert len(plan_cases([TensorSpec("x", "float32", (4, 7))], [Hint()], seed=0)) == 1
    scalar = plan_cases([TensorSpec("x", "float32", ())], [Hint()], seed=0)
    assert shapes(scalar) == [[((),)]]


def test_a_fixed_batch_still_has_two_free_sizes():
    spec = TensorSpec("x", "float32", (4, "t", 2))
    assert [s[0][0][1] for s in shapes(plan_cases([spec], [Hint()], seed=0))] == [12, 7]


def test_equal_seeds_give_equal_inputs():
    def drawn(seed):
        return [c.arrays for a in plan_cases([IMAGE, TOKENS], [Hint()] * 2, seed=seed) for c in a]

    for one, two in zip(drawn(3), drawn(3), strict=True):
        assert all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))
    assert not np.array_equal(drawn(3)[0][0], drawn(4)[0][0])


def test_samples_are_draws_of_their_own():
    cases = plan_cases([TABLE], [Hint()], seed=0, samples=3)
    assert len(cases) == 6
    assert len({c[0].name for c in cases}) == 6
    assert not np.array_equal(cases[0][0].arrays[0], cases[1][0].arrays[0])


def test_an_input_of_unknown_rank_is_tried_in_many():
    unknown = TensorSpec("x", "float32", None)
    cases = plan_cases(
        [unknown, TensorSpec("keep", "float32", None)], [Hint(), Hint(is_scalar=True)], seed=0
    )
    assert len(cases) == 2
    shapes = [tuple(a.shape for a in case.arrays) for case in cases[0]]
    assert len(shapes) > 8
    assert {len(x) for x, _ in shapes} >= {0, 1, 2, 3, 4}
    assert {keep for _, keep in shapes} == {()}


def test_pictures_of_the_sizes_that_models_were_made_for_are_tried_last():
    (one, _) = plan_cases([TensorSpec("x", "uint8", ("n", "h", "w", 3))], [Hint()], seed=0)
    sizes = [case.arrays[0].shape[1:3] for case in one]
    assert sizes[0] == (64, 96)
    assert {(224, 224), (32, 32), (28, 28), (299, 299)} < set(sizes)
    assert len(set(sizes)) == len(sizes)


def test_numbers_of_other_kinds_are_tried_after_all_sizes():
    specs = [TensorSpec("i", "int64", (3, 5)), TensorSpec("x", "float32", (2,))]
    (one,) = plan_cases(specs, [Hint(), Hint()], seed=0, is_varied=True)
    first, small, permuted, positive = (case.arrays for case in one)
    assert first[0].max() > 2
    assert set(small[0].flat) == {0, 1}
    assert [sorted(row) for row in permuted[0].tolist()] == [[0, 1, 2, 3, 4]] * 3
    assert positive[1].min() > 0
    assert len({case.name for case in one}) == 4
    (scalar,) = plan_cases([TensorSpec("i", "int32", ())], [Hint()], seed=0, is_varied=True)
    assert {case.arrays[0].shape for case in scalar} == {()}
    (known,) = plan_cases(specs, [Hint(high=4), Hint(scale=9.0)], seed=0, is_varied=True)
    assert len(known) == 1


# -- what layers say -----------------------------------------------------------------------------


def test_an_embedding_bounds_its_tokens_whatever_their_dtype():
    found = hint_of(("Embedding", {"input_dim": 11, "output_dim": 2}))
    assert (found.low, found.high, found.masked) == (0, 11, None)
    rng = np.random.default_rng(0)
    for dtype in ("int32", "float32"):
        array = draw_array(rng, dtype, (50, 9), found)
        assert array.dtype == dtype
        assert set(np.unique(array)) == set(range(11))


def test_an_embedding_that_masks_gets_padding():
    found = hint_of(("Embedding", {"input_dim": 11, "output_dim": 2, "mask_zero": True}))
    array = draw_array(np.random.default_rng(0), "int32", (3, 7), found)
    assert array[0].all()
    assert array[1, :4].all()
    assert not array[1, 4:].any()


def test_the_smallest_of_several_embeddings_bounds():
    config = {
        "name": "m",
        "layers": [
            {"class_name": "InputLayer", "name": "x", "inbound_nodes": [],
             "config": {"name": "x", "batch_input_shape": [None, None], "dtype": "int32"}},
            *({"class_name": "Embedding", "name": f"e{n}",
               "config": {"name": f"e{n}", "input_dim": n, "output_dim": 2},
               "inbound_nodes": [[["x", 0, 0, {}]]]} for n in (30, 20)),
        ],
        "input_layers": [["x", 0, 0]],
        "output_layers": [["e30", 0, 0], ["e20", 0, 0]],
    }  # fmt: skip
    (found,) = find_hints(parse({"class_name": "Functional", "config": config})).values()
    assert found.high == 20


def test_an_embedding_is_found_behind_reshapes_and_in_nested_models():
    inner = sequential(("Embedding", {"input_dim": 5, "output_dim": 2}))
    found = hint_of(("Reshape", {"target_shape": [4]}), ("Dropout", {"rate": 0.5}))
    assert found.high is None
    nested = sequential(("Reshape", {"target_shape": [4]}))
    nested["config"]["layers"].append(inner)
    assert find_hints(parse(nested))["x"].high == 5
    wrapped = {"class_name": "Embedding", "config": {"name": "e", "input_dim": 6, "output_dim": 2}}
    assert hint_of(("TimeDistributed", {"layer": wrapped})).high == 6


def test_not_behind_a_layer_that_computes():
    found = hint_of(("Dense", {"units": 3}), ("Embedding", {"input_dim": 5, "output_dim": 2}))
    assert found.high is None


@pytest.mark.parametrize(
    ("kind", "config", "low", "high"),
    [
        ("CategoryEncoding", {"num_tokens": 6}, 0, 5),
        ("IntegerLookup", {"vocabulary": [40, 41]}, 40, 48),
        ("Rescaling", {"scale": 1 / 127.5, "offset": -1}, -600, 900),
        ("Discretization", {"bin_boundaries": [100.0, 200.0]}, -200, 500),
        ("Normalization", {"mean": [[50.0]], "variance": [[4.0]]}, 40, 60),
    ],
)
def test_what_other_layers_expect(kind, config, low, high):
    array = draw_array(np.random.default_rng(0), "float32", (200,), hint_of((kind, config)))
    assert low <= array.min() < array.max() <= high
    assert array.max() - array.min() > (high - low) / 5


def test_words_are_those_of_the_vocabulary_and_one_that_is_not():
    known = {"vocabulary": ["cat", "dog"]}
    array = draw_array(np.random.default_rng(0), "string", (40,), hint_of(("StringLookup", known)))
    assert array.dtype.kind == "U"
    assert {"cat", "dog"} < set(array.tolist())
    assert len(set(array.tolist())) == 3
    config = sequential(("StringLookup", {"vocabulary": None}))
    (found,) = find_hints(parse(config), ["owl"]).values()
    assert "owl" in found.words


def test_masking_masks_steps():
    array = draw_array(np.random.default_rng(0), "float32", (2, 5, 3), hint_of(("Masking", {"mask_value": 9.0})))  # fmt: skip # noqa: E501
    assert (array[1, 3:] == 9).all()
    assert not (array[:, :3] == 9).any()


def test_masks_are_zeros_and_ones():
    array = draw_array(np.random.default_rng(0), "float32", (30, 6), Hint(is_mask=True))
    assert set(np.unique(array)) == {0, 1}
    assert array[:, 0].all()


def test_an_argument_called_mask_is_one():
    config = {
        "name": "m",
        "layers": [
            *({"class_name": "InputLayer", "name": n, "inbound_nodes": [],
               "config": {"name": n, "batch_input_shape": [None, 5, 2], "dtype": "float32"}}
              for n in ("x", "seen")),
            {"class_name": "MultiHeadAttention", "name": "a", "config": {"name": "a"},
             "inbound_nodes": [[["x", 0, 0, {"value": ["x", 0, 0],
                                             "attention_mask": ["seen", 0, 0]}]]]},
        ],
        "input_layers": [["x", 0, 0], ["seen", 0, 0]],
        "output_layers": [["a", 0, 0]],
    }  # fmt: skip
    found = find_hints(parse({"class_name": "Functional", "config": config}))
    assert {name: hint.is_mask for name, hint in found.items()} == {"x": False, "seen": True}


@pytest.mark.parametrize(
    ("dtype", "kept", "low", "high"),
    [("bool", "bool", 0, 1), ("uint8", "uint8", 0, 255), ("int64", "int64", 0, 9),
     ("float16", "float16", -6, 6), ("bfloat16", "float32", -6, 6)],
)  # fmt: skip
def test_elements_of_every_dtype(dtype, kept, low, high):
    array = draw_array(np.random.default_rng(0), dtype, (300,), Hint())
    assert array.dtype == kept
    assert low <= float(array.min()) < float(array.max()) <= high


# -- the user's own ------------------------------------------------------------------------------


# -- what encoded inputs decode to ---------------------------------------------------------------


def test_lengths_say_how_many_values_there_are():
    specs = [TensorSpec("v", "int64", ("v/count",)), TensorSpec("n", "int64", ("batch",))]
    found = [Hint(is_alone=True), Hint(counted="v/count")]
    cases = plan_cases(specs, found, seed=0, is_varied=True)
    assert [len(alternatives[0].arrays[1]) for alternatives in cases] == [1, 3]
    for alternatives in cases:
        assert all(
            len(values) == counts.sum() for values, counts in (c.arrays for c in alternatives)
        )
        assert len(alternatives[0].arrays[0]) > 3
        ones = [c for c in alternatives if c.name.endswith("one in each row")]
        assert ones
        assert all((c.arrays[1] == 1).all() for c in ones)


def test_sizes_that_alone_make_sense_and_numbers_that_fit():
    specs = [TensorSpec("x", "float32", ("x/samples", "x/channels"))]
    sizes = (("x/channels", (1, 1)), ("x/samples", (50, 40)))
    hint = Hint(is_alone=True, sizes=sizes, grain=1 / 8, low=-8, high=8)
    cases = plan_cases(specs, [hint], seed=0)
    assert [c[0].arrays[0].shape for c in cases] == [(50, 1), (40, 1)]
    steps = cases[0][0].arrays[0] * 8
    assert (steps == np.rint(steps)).all()
    assert steps.min() >= -8
    assert steps.max() < 8


def test_unsigned_numbers_beyond_those_with_a_sign_are_drawn_exactly():
    words = (3, (1 << 64) - 1)
    array = draw_array(np.random.default_rng(0), "uint64", (40,), Hint(words=words))
    assert {int(n) for n in array} == set(words)


def test_a_users_npz_is_one_case(tmp_path):
    image, tokens = np.zeros((2, 5, 6, 3), "f4"), np.ones((2, 4), "i8")
    np.savez(tmp_path / "mine.npz", tokens=tokens, image=image)
    ((case,),) = cases_from_file(tmp_path / "mine.npz", [IMAGE, TOKENS])
    assert case.name == "mine.npz"
    assert [(a.shape, a.dtype.name) for a in case.arrays] == [
        ((2, 5, 6, 3), "float32"),
        ((2, 4), "int32"),
    ]
    np.savez(tmp_path / "unnamed.npz", image, tokens)
    ((case,),) = cases_from_file(tmp_path / "unnamed.npz", [IMAGE, TOKENS])
    assert case.arrays[0].shape == image.shape


@pytest.mark.parametrize(
    ("arrays", "complaint"),
    [
        ({"image": np.zeros((1, 5, 6, 4), "f4")}, r"\[1, 5, 6, 4\]"),
        ({"image": np.zeros((5, 6, 3), "f4")}, r"\[5, 6, 3\]"),
        ({"picture": np.zeros((1, 5, 6, 3), "f4")}, "picture; expected image"),
        ({}, "nothing"),
        ({"image": np.array(["a"])}, "<U1"),
        ({"image": np.array([object()])}, "no .npz of plain arrays"),
    ],
)
def test_what_is_no_input_of_this_model_is_said(tmp_path, arrays, complaint):
    np.savez(tmp_path / "mine.npz", **arrays)
    with pytest.raises(UsageError, match=complaint):
        cases_from_file(tmp_path / "mine.npz", [IMAGE])


def test_what_is_no_npz_is_said(tmp_path):
    (tmp_path / "x.npz").write_bytes(b"no")
    np.save(tmp_path / "y.npz.npy", np.zeros(3))
    for name in ("x.npz", "y.npz.npy", "missing.npz"):
        with pytest.raises(UsageError):
            cases_from_file(tmp_path / name, [IMAGE])
