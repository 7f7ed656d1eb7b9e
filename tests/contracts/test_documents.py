"""Documents are contracts: their commands run, their links, files, options and figures exist."""

import json
import re
import struct
import subprocess
import sys
import tomllib
from pathlib import Path

import generate
import pages
import pictures
import pytest
import sessions
import yaml
from command_lines import check_command
from repository import ROOT

import formats.errors

PAGES = pages.read_pages()
BLOCKS = [block for page in PAGES for block in page.blocks]
WALKS = sorted((ROOT / "docs/quickstart").glob("*.md"))
LANGUAGES = {"console", "sh", "python", "pycon", "text", "yaml", "toml", "json", "groovy"}


def by_name(page):
    return page.name


@pytest.mark.thorough
@pytest.mark.parametrize("page", [p for p in PAGES if any(b.is_run for b in p.blocks)], ids=by_name)
def test_commands_print_what_the_document_shows(page, tmp_path):
    """`python tools/docs/sessions.py --update` writes down what they print now."""
    problems = [ran.problem for ran in sessions.run(page, tmp_path) if ran.problem]
    assert not problems, "\n".join(problems)


# Variables that Slurm, Kubernetes and GitLab set for the first of several jobs.
SCHEDULED = {
    "SLURM_ARRAY_TASK_ID": "1", "SLURM_ARRAY_TASK_COUNT": "2", "JOB_COMPLETION_INDEX": "0",
    "CI_NODE_INDEX": "1", "CI_NODE_TOTAL": "2",
}  # fmt: skip


@pytest.mark.thorough
def test_commands_for_schedulers_run_with_their_variables(tmp_path):
    """Those for servers are run in tests/live."""
    page = pages.Page(ROOT / "docs/registries.md")
    ran = list(sessions.run(page, tmp_path, title="Needs a scheduler", environment=SCHEDULED))
    assert len(ran) == 3
    assert not [one.problem for one in ran if one.problem]


@pytest.mark.parametrize("page", PAGES, ids=by_name)
def test_every_command_has_the_options_that_it_is_shown_with(page):
    """Also of the commands that do not run here: they need servers, devices, files of nobody's."""
    for words, is_complete in page.converts():
        check_command(words, is_complete=is_complete)


def test_a_block_that_does_not_run_says_why():
    for block in BLOCKS:
        assert block.language in LANGUAGES, (block.page, block.language)
        if block.title and not (block.file or block.is_install or block.is_marked):
            known = block.title in pages.FRAMEWORKS or block.title == "Jenkinsfile"
            assert known, (block.page, block.title)


def test_blocks_of_data_can_be_parsed():
    parsers = {"yaml": yaml.safe_load, "toml": tomllib.loads, "json": json.loads}
    parsed = [parsers[b.language](b.text) for b in BLOCKS if b.language in parsers]
    assert len(parsed) >= 5
    assert all(parsed)


def test_five_walks_begin_with_an_environment():
    assert len(WALKS) == 6  # the index, too
    for path in WALKS:
        installs = [block for block in pages.Page(path).blocks if block.is_install]
        assert len(installs) == 1, path
        assert re.fullmatch(r"pip install [\"\w.\[\],]+\n", installs[0].text)


def test_files_of_pages_are_fixtures():
    for page in PAGES:
        for source in page.files.values():
            assert source.startswith("fixtures/")
            assert (ROOT / source.partition("!")[0]).exists(), (page.name, source)


@pytest.mark.parametrize("page", PAGES, ids=by_name)
def test_links_and_named_files_exist(page):
    text = pages.FENCE.sub("", page.text)
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
        if not target.startswith("https://"):
            assert (page.path.parent / target).exists(), target
    kinds = "py|json|md|toml|txt"
    for name in re.findall(
        rf"`((?:formats|converter|tests|fixtures|benchmarks|tools)/[\w./-]+\.(?:{kinds}))\b", text
    ):
        assert (ROOT / name).exists() or name == "tests/converter/write/test_triton.py", name


def test_what_is_generated_has_a_place_and_every_place_a_generator():
    marks = [name for page in PAGES for name in generate.MARK.findall(page.text)]
    assert {*marks} == {*generate.GENERATORS}


@pytest.mark.parametrize("name", sorted({*generate.GENERATORS} - {"ops-torch", "ops-tensorflow"}))
def test_generated_parts_are_tables(name):
    made = generate.GENERATORS[name]()
    lines = [line for line in made.splitlines() if line.startswith("|")]
    assert len(lines) > 5
    assert not [line for line in lines if line.count("|") < 3]


def test_generated_options_are_those_of_the_program():
    made = generate.cli()
    from converter.cli.parameters import ROWS

    for row in ROWS:
        assert f"`{row.flag}" in made, row.flag


def test_exit_codes_are_all_explained():
    text = (ROOT / "docs/reference/exit-codes.md").read_text()
    shown = {int(code) for code in re.findall(r"^\| (\d+) \|", text, re.MULTILINE)}
    kinds = [kind for kind in vars(formats.errors).values() if isinstance(kind, type)]
    codes = {kind.exit_code for kind in kinds if issubclass(kind, formats.errors.ConvertError)}
    assert shown == codes | {0, 130}


def letters(text):
    """Return a text without what a message fills in, and without the joints of strings in code."""
    joined = re.sub(r'"\s*f?"', "", text.replace('\\"', '"'))
    return re.sub(r"\{[^{}]*\}|cuda|[^a-z]", "", joined.lower())


def test_error_messages_on_the_doctor_page_are_those_that_doctor_knows():
    """They are in its rules, or in what the loaders said to fixtures/doctor."""
    rules, said = (
        (ROOT / "converter/doctor").rglob("*.py"),
        (ROOT / "fixtures/doctor").glob("*.json"),
    )
    known = letters("".join(path.read_text() for path in (*rules, *said)))
    headings = re.findall(r"^#### (`.*`)$", (ROOT / "docs/doctor.md").read_text(), re.MULTILINE)
    assert len(headings) > 25
    for heading in headings:
        for part in heading.split("` … `"):
            assert letters(part) in known, part


def test_terminal_picture_shows_what_the_program_prints():
    """`python tools/docs/pictures.py terminal` makes it again."""
    if sessions.HAS_FRAMEWORKS:
        pytest.skip("the picture is of a machine without frameworks")
    stored = (pictures.IMAGES / "terminal.svg").read_text()
    assert pictures.words(stored) == pictures.words(pictures.terminal())


def test_chart_shows_the_table_of_measurements():
    assert (pictures.IMAGES / "benchmarks.svg").read_text() == pictures.benchmarks()


def test_report_picture_is_small():
    content = (pictures.IMAGES / "report.png").read_bytes()
    assert content.startswith(b"\x89PNG")
    assert struct.unpack(">II", content[16:24]) == (1400, 900)
    assert len(content) < 200_000


def test_figures_of_readme_are_those_of_the_benchmarks():
    readme, measured = (ROOT / "README.md").read_text(), (ROOT / "docs/benchmarks.md").read_text()
    row = re.search(
        r"^\| 1 GB `\.pt` \| ([\d.]+) s \| .* \| ([\d.]+) s \|$", measured, re.MULTILINE
    )
    assert f"takes {float(row[2]):.1f} s (`cp`: {float(row[1]):.1f} s)" in readme


@pytest.mark.parametrize("page", PAGES, ids=by_name)
def test_documents_are_in_plain_words(page):
    """The project's old private English (VOCABULARY): usual words say the same."""
    text = pages.FENCE.sub("", page.text)
    odd = r"what is none|whoever|stands? beside|whole numbers|\bgaps?\b|is told|back end|byte-code"
    assert not re.findall(odd, text, re.IGNORECASE)


def test_update_changes_only_what_differs(tmp_path, monkeypatch):
    path = tmp_path / "page.md"
    first, second = "$ echo one\nold\n$ echo two\ntwo\n", "$ echo 0.1 s\n9.9 s\n"
    text = f"```console\n{first}```\n\n```console\n{second}```\n"
    path.write_text(text)
    monkeypatch.setattr(pages, "ROOT", tmp_path)
    monkeypatch.setattr(sessions, "HAS_FRAMEWORKS", False)
    page = pages.Page(path)
    (tmp_path / "folder").mkdir()
    ran = list(sessions.run(page, tmp_path / "folder"))
    assert [one.agrees for one in ran] == [False, True, True]
    assert sessions.update(page, ran)
    assert path.read_text() == text.replace("old", "one")


@pytest.mark.parametrize(
    ("shown", "printed", "agrees"),
    [
        ("a\n…\nd\n", "a\nb\nc\nd\n", True),
        ("a …\n", "a (0.02 s) b\n", True),
        ("a (0.02 s)\n", "a (1.5 s)\n", True),
        ("a\n", "a\nb\n", False),
        ("a\n…\nd\n", "a\nb\n", False),
        ("done  b\ndone  a\n", "done  a\ndone  b\n", True),
    ],
)
def test_outputs_are_compared_without_times(shown, printed, agrees, monkeypatch):
    monkeypatch.setattr(sessions, "HAS_FRAMEWORKS", False)
    block = pages.Block("p", "console", "", "", (0, 0))
    assert sessions.Ran(block, "x", shown, printed, 0).agrees == agrees


def test_sessions_can_be_run_by_hand():
    command = [sys.executable, ROOT / "tools/docs/sessions.py", "docs/reference/exit-codes.md"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path("/"))
    assert done.returncode == 0, done.stdout
