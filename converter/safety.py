"""Say what a safety finding means: how severe it is, what would run, and when.

Nothing of a source is ever run here; findings say what a framework's own loader would do with it.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from converter.version import VERSION
from formats.core.bundle import JSON, SafetyFinding

SARIF = "https://json.schemastore.org/sarif-2.1.0.json"
SEVERITIES = ("error", "warning")


class Kind(NamedTuple):
    """A kind of finding.

    Attributes:
        severity: ``error`` if opening the source in the named way runs code or leaves its folder;
            ``warning`` if that takes more than opening it.
        meaning: What would happen, and when; ``{}`` stands for what is named.
    """

    severity: str
    meaning: str


KINDS: Mapping[str, Kind] = {
    "pickle-callable": Kind(
        "error", "would call {} when torch.load(weights_only=False) or pickle.load opens it"
    ),
    "pickle-reference": Kind(
        "warning", "refers to {} and does not call it: pickle.load imports it and hands it on"
    ),
    "lambda-bytecode": Kind(
        "error",
        "holds bytecode in {} that load_model(safe_mode=False) loads, and each call runs",
    ),
    "lambda-text": Kind(
        "error",
        "holds source code as text in {}, where Keras expects a name: a loader that evaluates it "
        "runs whatever it says",
    ),
    "keras-function": Kind(
        "error", "would call {}, a function and no layer, in versions of Keras that allow it"
    ),
    "custom-object": Kind(
        "warning", "needs {}, code of its author, which load_model looks up in custom_objects"
    ),
    "link": Kind("error", "would open {}, a file outside of it, when its weights are read"),
    "py-func": Kind("error", "would call {}, a function of the process that runs the graph"),
    "file-op": Kind("warning", "would read or write files by {} when the graph runs"),
    "native-code": Kind("error", "would load the compiled code {} when torch runs the package"),
}
UNKNOWN = Kind("error", "names {}")


def severity(finding: SafetyFinding) -> str:
    """Return ``error`` or ``warning``."""
    return KINDS.get(finding.kind, UNKNOWN).severity


def describe(finding: SafetyFinding) -> str:
    """Return what would happen, when, and where it is named, as one line."""
    kind = KINDS.get(finding.kind, UNKNOWN)
    meaning = kind.meaning.format(finding.subject)
    return f"{kind.severity} {finding.kind}: {meaning} (in {finding.where})"


def explain(finding: SafetyFinding) -> str:
    """Return the predicate of a sentence about the source: what would happen, when, and where."""
    meaning = KINDS.get(finding.kind, UNKNOWN).meaning.format(finding.subject)
    return f"{meaning} ({finding.kind}, in {finding.where})"


def as_json(finding: SafetyFinding) -> dict[str, JSON]:
    """Return a finding with its severity and meaning."""
    kind = KINDS.get(finding.kind, UNKNOWN)
    return {
        "kind": finding.kind,
        "severity": kind.severity,
        "subject": finding.subject,
        "where": finding.where,
        "meaning": kind.meaning.format(finding.subject),
    }


def as_sarif(found: Iterable[tuple[str, Sequence[SafetyFinding]]]) -> dict[str, JSON]:
    """Return findings as a SARIF 2.1.0 log, which code scanning reads.

    Args:
        found: For each artifact, its path and its findings.

    Source: https://docs.oasis-open.org/sarif/sarif/v2.1.0/
    """
    rules: list[JSON] = [
        {
            "id": name,
            "shortDescription": {"text": kind.meaning.format("code")},
            "defaultConfiguration": {"level": kind.severity},
        }
        for name, kind in KINDS.items()
    ]
    results: list[JSON] = [
        {
            "ruleId": finding.kind,
            "level": severity(finding),
            "message": {"text": describe(finding)},
            "locations": [
                {
                    "physicalLocation": {"artifactLocation": {"uri": path}},
                    "logicalLocations": [{"fullyQualifiedName": finding.where}],
                }
            ],
        }
        for path, findings in found
        for finding in findings
    ]
    driver: dict[str, JSON] = {"name": "convert", "version": VERSION, "rules": rules}
    return {
        "$schema": SARIF,
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": results}],
    }
