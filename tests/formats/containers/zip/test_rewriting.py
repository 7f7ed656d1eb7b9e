"""Archives whose members are replaced, against torch's own layout and Python's own reader."""

import io
import random
import zipfile

import pytest
from damage import damage
from repository import FIXTURES

from formats.artifact import Artifact
from formats.containers.zip.archive import ZipArchive
from formats.containers.zip.rewriting import Content, Rewriter
from formats.core.storage import Buffer, Span
from formats.errors import ConvertError, CorruptError
from formats.limits import DEFAULT

ARCHIVES = sorted(
    p
    for p in (*FIXTURES.glob("torch/*.p*"), *FIXTURES.glob("torch_moved/*.p*"))
    if p.suffix != ".py" and p.read_bytes()[:4] == b"PK\x03\x04"
)


def rewriter(data):
    span = Span.whole(Buffer(data, "archive"))
    return Rewriter(ZipArchive(span, DEFAULT), span)


def joined(pieces):
    return b"".join(p.read() if isinstance(p, Span) else p for p in pieces)


def stored(data):
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return [i.filename for i in archive.infolist() if i.compress_type == zipfile.ZIP_STORED]


def contents(data):
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert archive.testzip() is None
        return {name: archive.read(name) for name in archive.namelist()}


def test_there_are_archives_of_all_ages():
    assert len(ARCHIVES) > 20


@pytest.mark.parametrize("path", ARCHIVES, ids=lambda p: p.name)
def test_what_is_replaced_by_itself_is_the_same_file(path):
    data = path.read_bytes()
    made = rewriter(data)
    assert joined(made.rewrite({})) == data
    same = {name: Content.of(content) for name, content in contents(data).items()}
    same = {name: content for name, content in same.items() if name in stored(data)}
    assert joined(made.rewrite(same)) == data


@pytest.mark.parametrize("path", ARCHIVES, ids=lambda p: p.name)
def test_members_that_grow_and_shrink_again_leave_the_same_file(path):
    """The way there moves every member; the way back must find torch's own places."""
    data = path.read_bytes()
    before = contents(data)
    names = stored(data)
    rng = random.Random(len(data))
    grown = {
        n: before[n] + bytes(rng.randrange(1, 90)) for n in rng.sample(names, min(3, len(names)))
    }
    there = joined(rewriter(data).rewrite({n: Content.of(c) for n, c in grown.items()}))
    assert contents(there) == before | grown
    back = {n: Content.of(before[n]) for n in grown}
    assert joined(rewriter(there).rewrite(back)) == data


def test_data_of_moved_members_are_aligned():
    data = (FIXTURES / "torch_moved/exported-cpu.pt2").read_bytes()
    name = next(n for n in stored(data) if n.endswith("weight_0"))
    made = joined(rewriter(data).rewrite({name: Content.of(b"x" * 1001)}))
    span = Span.whole(Buffer(made, "archive"))
    members = ZipArchive(span, DEFAULT).members.values()
    assert {m.span().offset % 64 for m in members} == {0}


def test_another_alignment_is_kept():
    plain = rewriter((FIXTURES / "torch_moved/exported-cpu.pt2").read_bytes())
    assert plain.alignment == 64
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("a/.storage_alignment", "4096")
    assert rewriter(buffer.getvalue()).alignment == 4096


def test_deflated_members_stay_deflated():
    path = FIXTURES / "torch_moved/traced-cpu.pt"
    data = path.read_bytes()
    name = "traced-cpu/code/__torch__.py"
    made = joined(rewriter(data).rewrite({name: Content.of(b"def f(): pass\n" * 200)}))
    with zipfile.ZipFile(io.BytesIO(made)) as archive:
        assert archive.getinfo(name).compress_type == zipfile.ZIP_DEFLATED
        assert archive.getinfo(name).compress_size < 100
    assert contents(made)[name] == b"def f(): pass\n" * 200


def test_comments_extra_fields_and_directories_of_other_writers_stay():
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.comment = b"made by hand"
        archive.mkdir("folder")
        for name in ("folder/a", "folder/ä"):
            info = zipfile.ZipInfo(name, (2021, 3, 4, 5, 6, 8))
            info.comment, info.extra = b"why", b"\x99\x99\x02\x00ok"
            archive.writestr(info, name * 3)
    data = buffer.getvalue()
    made = joined(rewriter(data).rewrite({"folder/a": Content.of(b"longer than before")}))
    with zipfile.ZipFile(io.BytesIO(made)) as archive:
        assert archive.comment == b"made by hand"
        assert archive.namelist() == ["folder/", "folder/a", "folder/ä"]
        info = archive.getinfo("folder/ä")
        assert (info.comment, info.extra) == (b"why", b"\x99\x99\x02\x00ok")
        assert info.date_time == (2021, 3, 4, 5, 6, 8)
        assert archive.read("folder/a") == b"longer than before"
        assert archive.read("folder/ä") == "folder/ä".encode() * 3
        assert archive.testzip() is None


class Long:
    """Bytes that are somewhere else: as many as zip64 is for."""

    def __init__(self, size, name="long"):
        self.size, self.name = size, name

    def read(self, offset, length):
        assert offset + length <= self.size
        return b"\0" * length

    def readinto(self, offset, buffer):
        buffer[:] = self.read(offset, len(buffer))


def test_members_past_four_gigabytes_are_wide(tmp_path):
    """A member of 5 GB in front: what follows has wide places, as torch writes them."""
    data = (FIXTURES / "torch_moved/exported-cpu.pt2").read_bytes()
    name = next(n for n in stored(data) if n.endswith("weight_0"))
    size = 5 * 10**9
    content = Content([Span.whole(Long(size))], size, 0)
    pieces = rewriter(data).rewrite({name: content})
    path = tmp_path / "long.pt2"
    position = 0
    with path.open("wb") as file:  # a hole for the long member
        for piece in pieces:
            length = piece.length if isinstance(piece, Span) else len(piece)
            if length < size:
                file.seek(position)
                file.write(piece.read() if isinstance(piece, Span) else piece)
            position += length
    before = contents(data)
    with zipfile.ZipFile(path) as archive:
        assert archive.getinfo(name).file_size == size
        for other in before:
            if other != name:
                assert archive.read(other) == before[other]
    artifact = Artifact(path)
    assert artifact.zip is not None
    members = artifact.zip.members.values()
    assert {m.span().offset % 64 for m in members} == {0}
    back = Rewriter(artifact.zip, artifact.span).rewrite({name: Content.of(before[name])})
    assert joined(back) == data


def test_a_member_that_is_not_there_is_no_replacement():
    data = (FIXTURES / "torch_moved/exported-cpu.pt2").read_bytes()
    with pytest.raises(CorruptError, match="no member 'nothing'"):
        rewriter(data).rewrite({"nothing": Content.of(b"")})


def test_every_damage_is_an_error_or_another_archive():
    data = (FIXTURES / "torch_moved/scripted-cpu.pt").read_bytes()
    name = "scripted-cpu/data.pkl"
    rng = random.Random(5)
    outcomes = set()
    for _ in range(600):
        hurt = damage(data, rng)
        try:
            joined(rewriter(bytes(hurt)).rewrite({name: Content.of(b"new content")}))
            outcomes.add("written")
        except ConvertError:
            outcomes.add("refused")
    assert outcomes == {"written", "refused"}


def test_members_that_overlap_are_refused():
    data = (FIXTURES / "torch_moved/scripted-cpu.pt").read_bytes()
    at = data.index(b"PK\x01\x02")
    second = data.index(b"PK\x01\x02", at + 4)
    hurt = data[: second + 42] + data[at + 42 : at + 46] + data[second + 46 :]
    with pytest.raises(CorruptError, match="overlap"):
        rewriter(hurt)
