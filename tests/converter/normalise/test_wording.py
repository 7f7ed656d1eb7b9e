"""Changes are said in sentences, with singular and plural."""

import pytest

from converter.normalise.prefixes import KEPT, REMOVED
from converter.normalise.wording import describe_change
from formats.core.bundle import Normalisation
from formats.core.plurals import count, list_counts


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (("device tags", 35, "from cuda:1 to cpu"), "35 device tags: from cuda:1 to cpu"),
        (("device tags", 1, "from cuda:1 to cpu"), "1 device tag: from cuda:1 to cpu"),
        (("copies of variables made one", 1, ""), "1 copy of variables made one"),
        (("per-replica variables", 1, "x"), "1 per-replica variable: x"),
        (("storages moved", 2000, "x"), "2,000 storages moved: x"),
        (("numpy array made a tensor", 3, "why"), "numpy array made a tensor, 3 times: why"),
        (("DecodeJpeg as input", 1, "bytes"), "DecodeJpeg as input: bytes"),
        (("wrapper module", 1, REMOVED), "1 tensor: removed `module.` from their names"),
        (
            ("prefix 'net.'", 0, KEPT),
            "`net.` stays in the names of tensors: two would be equal without it",
        ),
    ],
)
def test_sentences(change: tuple[str, int, str], text: str) -> None:
    assert describe_change(Normalisation(*change)) == text


def test_counts() -> None:
    nouns = ("tensor", "entry", "axis", "flat index", "key")
    assert [count(noun, 1) for noun in nouns] == [f"1 {noun}" for noun in nouns]
    assert [count(noun, 2) for noun in nouns] == [
        "2 tensors", "2 entries", "2 axes", "2 flat indices", "2 keys",
    ]  # fmt: skip
    assert list_counts({"cuda:0": 2000, "cpu": 1}) == "cuda:0 (2,000), cpu (1)"
