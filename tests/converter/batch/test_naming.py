"""What outputs are called: never two the same, never one in another, never what nobody can hold."""

import pytest

from converter.batch.naming import find_ending, fold_name, names
from converter.options import Options
from converter.registries.entry import Entry


def named(*sources, known=(), others=(), options=None):
    entries = [Entry(f"/r/{name}", name, 1, "") for name in sources]
    known = {f"/r/{source}": name for source, name in dict(known).items()}
    found = names(entries, options or Options(), known, others)
    return [found[entry.source] for entry in entries]


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("a.h5", "a.portable"),
        ("team/a.keras", "team/a.portable"),
        ("model.weights.h5", "model.portable"),
        ("saved_model", "saved_model.portable"),
        ("v1.2", "v1.2.portable"),
        ("-rf.pt", "-rf.portable"),
        (".hidden.pt", ".hidden.portable"),
        (".h5", ".h5.portable"),
        ("mod\u00e8le \u6a21\u578b.pt", "mod\u00e8le \u6a21\u578b.portable"),
        ("two\nlines.pt", "two%0Alines.portable"),
        ("\x1b[31m.pt", "%1B[31m.portable"),
        ("\udcff.pt", "%FF.portable"),
        ("a//b.pt", "a/b.portable"),
        ("../a.pt", "%2E%2E/a.portable"),
        ("./a.pt", "%2E/a.portable"),
        ("/etc/a.pt", "etc/a.portable"),
    ],
)
def test_a_source_alone(source, name):
    assert named(source) == [name]


def test_those_that_would_be_called_the_same_keep_their_suffixes():
    assert named("a.h5", "a.pt", "a", "b.pt") == [
        "a.h5.portable", "a.pt.portable", "a.portable", "b.portable",
    ]  # fmt: skip


def test_file_systems_that_see_less():
    found = named("A.h5", "a.pt", "\u00e9.pt", "e\u0301.pt", "STRASSE.pt", "stra\u00dfe.pt")
    assert len({fold_name(name) for name in found}) == 6
    assert found[:2] == ["A.h5.portable", "a.pt.portable"]
    assert found[3] == "e\u0301.pt-2.portable"


def test_what_is_spelled_out_meets_nothing():
    found = named("x\ny.pt", "x%0Ay.pt")
    assert len(set(found)) == 2


def test_no_output_stands_in_another():
    assert named("a.h5", "a.portable/in.pt", "a.portable/x.pt") == [
        "a.portable", "a.portable-2/in.portable", "a.portable-2/x.portable",
    ]  # fmt: skip
    # Folders first: what is called like one moves aside.
    assert named("a.portable/in.pt", "a.h5") == ["a.portable/in.portable", "a.h5.portable"]


@pytest.mark.parametrize("letter", ["z", "\u00e9", "\U0001f600"])
def test_names_that_are_too_long(letter, tmp_path):
    stems = [letter * (250 // len(letter.encode())) + end for end in ("", "1", "2")]
    found = named(*(f"{stem}.pt" for stem in stems), f"{stems[0]}/{stems[1]}.h5")
    assert len(set(found)) == 4
    for name in found:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.with_name(f".{path.name}.convert-01234567").mkdir()  # as staging folders are
        path.mkdir()
        assert name.endswith(".portable")
    assert named(*(f"{stem}.pt" for stem in reversed(stems))) == found[2::-1]  # whatever the order


def test_a_name_is_for_good():
    first = dict(zip(["a.pt"], named("a.pt"), strict=True))
    assert first == {"a.pt": "a.portable"}
    second = named("a.h5", "a.pt", known=first)
    assert second == ["a.h5.portable", "a.portable"]
    assert named("a.h5", known={"a.h5": second[0], "a.pt": "a.portable"}) == ["a.h5.portable"]
    assert named("a.keras", known=first) == ["a.keras.portable"]  # a.pt may come back


def test_other_targets_in_the_same_destination():
    options = Options(to="torch", device="cuda:1")
    assert find_ending(options) == ".cuda-1.pt"
    assert named("a.h5", options=options) == ["a.cuda-1.pt"]
    assert named("a.pt", others=["a.portable"]) == ["a.pt.portable"]
    assert named("a.portable/b.pt", options=options, others=["a.portable"]) == [
        "a.portable-2/b.cuda-1.pt"
    ]


def test_names_hold_on_this_file_system(tmp_path):
    sources = ["-a.pt", " .pt", "a\tb.pt", "'\"\\.pt", "*?[].pt", "~.pt", "$(x).pt", "\u202e.pt"]
    for name in named(*sources):
        (tmp_path / name).mkdir()
    assert len(list(tmp_path.iterdir())) == len(sources)


def test_entries_of_a_triton_repository_are_called_as_models_and_stand_in_one_folder():
    made = names(
        [Entry("/r/a/net.h5", "a/net.h5", 1, ""), Entry("/r/b/net.pt", "b/net.pt", 1, "")],
        Options(to="triton", device="cpu"),
        {},
    )
    assert [*made.values()] == ["a-net", "b-net"]
