"""Safety findings: how severe they are, what would run and when; SARIF; strict inspection."""

import json
import os
import pickle

import pytest
from repository import ROOT

import converter
from converter import safety
from converter.cli.app import run
from formats.core.bundle import SafetyFinding

FIXTURES = ROOT / "fixtures"


class Call:
    """Pickles as a call of os.system."""

    def __reduce__(self):
        return os.system, ("true",)


@pytest.fixture
def evil(tmp_path):
    """Pickles that call, or only refer to, a function that runs programs."""

    def write(value):
        path = tmp_path / "evil.pkl"
        path.write_bytes(pickle.dumps({"a": value}))
        return path

    return write


def test_a_call_is_an_error_and_says_when_it_would_run(evil):
    (finding,) = converter.inspect(evil(Call())).findings
    assert finding.kind == "pickle-callable"
    assert safety.severity(finding) == "error"
    said = safety.describe(finding)
    assert f"would call {os.system.__module__}.system when torch.load(weights_only=False)" in said


def test_a_function_that_is_only_referred_to_is_a_warning(evil):
    (finding,) = converter.inspect(evil(os.system)).findings
    assert finding.kind == "pickle-reference"
    assert safety.severity(finding) == "warning"
    assert "does not call it" in safety.describe(finding)


@pytest.mark.parametrize("value", [Call(), os.system])
def test_strict_inspection_fails_after_it_has_shown_all(evil, value, capsys):
    path = str(evil(value))
    assert run(["inspect", path]) == 0
    capsys.readouterr()
    assert run(["inspect", path, "--strict-safety"]) == 5
    shown = capsys.readouterr()
    assert "safety findings (nothing was run)" in shown.out
    assert "1 safety finding, first" in shown.err


def test_a_harmless_source_passes_strict_inspection():
    assert run(["inspect", str(FIXTURES / "verify/pairs.h5"), "--strict-safety"]) == 0


def test_sarif_has_a_result_for_each_finding(evil, tmp_path):
    path = str(evil(Call()))
    out = tmp_path / "findings.sarif"
    assert run(["inspect", path, "--sarif", str(out)]) == 0
    log = json.loads(out.read_text())
    assert log["version"] == "2.1.0"
    (made,) = log["runs"]
    (result,) = made["results"]
    assert result["ruleId"] in {rule["id"] for rule in made["tool"]["driver"]["rules"]}
    assert result["level"] == "error"
    place = result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert place == path


def test_sarif_of_nothing_has_no_results(tmp_path):
    out = tmp_path / "findings.sarif"
    source = str(FIXTURES / "verify/pairs.h5")
    assert run(["inspect", source, "--sarif", str(out)]) == 0
    assert json.loads(out.read_text())["runs"][0]["results"] == []


@pytest.mark.parametrize("kind", [*safety.KINDS, "something new"])
def test_every_kind_has_a_severity_and_a_sentence(kind):
    finding = SafetyFinding(kind, "posix.system", "data.pkl")
    assert safety.severity(finding) in safety.SEVERITIES
    assert "posix.system" in safety.describe(finding)
    assert safety.as_json(finding)["where"] == "data.pkl"
