"""Records of outputs that `convert verify DIR` checked, read from their manifests."""

from typing import Any

from converter.jobs.record import Record, RecordedError, RecordedGraph, RecordedVerification
from converter.verification.bundle_check import CheckResult

# Names of failures by their exit codes.
ERRORS = {
    1: "VerificationError", 3: "SourceError", 4: "UnsupportedError", 5: "SafetyError",
}  # fmt: skip


def record_of(checked: CheckResult, name: str) -> Record:
    """Return the record of an output, from its manifest.

    Args:
        checked: The checked output.
        name: Its name in reports.
    """
    manifest = checked.manifest
    about, verification = manifest.get("source", {}), manifest.get("verification", {})
    weights = _object(verification.get("weights"))
    graphs = [g for g in (manifest.get("graph"), *manifest.get("graphs", ())) if g]
    reports = (("", verification.get("graph")), *verification.get("graphs", {}).items())
    error = None
    if checked.exit_code:
        message = "\n".join([*checked.problems, checked.reason]).strip()
        error = RecordedError(ERRORS.get(checked.exit_code, "ConvertError"), message)
    return Record(
        str(about.get("name", "")),
        name,
        output=str(checked.path),
        to="portable",
        status="failed" if checked.exit_code else "done",
        exit_code=checked.exit_code,
        error=error,
        bytes=checked.nbytes,
        format=about.get("format"),
        variant=about.get("variant"),
        framework=about.get("framework"),
        recorded=about.get("recorded", {}),
        devices=about.get("devices", {}),
        distribution=about.get("distribution", {}),
        source_digest=about.get("digest", {}).get("value"),
        weights_digest=manifest.get("weights_digest", {}).get("value"),
        tensors=weights.get("tensors", 0),
        weight_bytes=weights.get("bytes", 0),
        normalisations=tuple(manifest.get("normalisations", ())),
        left_out=tuple(manifest.get("left_out", ())),
        findings=tuple(about.get("findings", ())),
        graphs=tuple(
            RecordedGraph(g.get("signature", ""), g.get("nodes"), g.get("opset"), g.get("exporter"))
            for g in graphs
        ),
        verification=RecordedVerification(
            checked.reached, weights or None, {name: report for name, report in reports if report}
        ),
        seconds=round(checked.seconds, 4),
        tool=_object(manifest.get("environment")).get("tool"),
    )


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
