"""Predictions confirmed by the official loaders themselves, in children with limits (``--run``).

A loader is run where it is installed and where opening the artifact cannot run what its author
wrote: it is called in its safe mode, and not at all where our reader found code in the artifact.
"""

import os
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from converter.child.process import Allowance, ask
from converter.doctor.findings import Prediction
from converter.doctor.host import Host, numbers
from converter.doctor.loaders.torch import WEIGHTS_ONLY_SINCE
from converter.doctor.probes.probe import AT_ONCE, users_environment
from converter.doctor.source import Source
from formats.errors import EnvironmentFault

SCRIPT = Path(__file__).with_name("ask_loader.py")
SECONDS = 120.0
SAME = 40  # characters of a message that must agree


def confirm(
    predictions: list[Prediction], source: Source, host: Host, *, seconds: float = SECONDS
) -> Iterator[Prediction]:
    """Yield each prediction with what its loader really did, or with why it was not run."""
    reasons = [refusal(p, source) for p in predictions]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        runs = [
            None if reason else pool.submit(_run, p, source.path, host.executable, seconds)
            for p, reason in zip(predictions, reasons, strict=True)
        ]
        for prediction, reason, run in zip(predictions, reasons, runs, strict=True):
            yield run.result() if run else replace(prediction, check=f"not run: {reason}")


def refusal(prediction: Prediction, source: Source) -> str:
    """Return why a loader is not run; "" where it may be."""
    if not prediction.installed:
        return f"{prediction.framework} is not installed"
    loader = prediction.loader
    if loader.startswith("torch.export"):
        return "it evaluates expressions of the artifact"
    if loader.startswith("torch.jit") and source.torch and source.torch.sets_state:
        return "the archive's own code would run while it loads (__setstate__)"
    if loader.startswith("torch.load"):
        old = numbers(prediction.version) < WEIGHTS_ONLY_SINCE
        return "this torch runs what a pickle names, by default" if old else ""
    if source.findings:
        first = source.findings[0]
        return f"the artifact names code or files ({first.kind}: {first.subject})"
    return ""


def _run(prediction: Prediction, path: str, python: str, seconds: float) -> Prediction:
    question = {
        "loader": prediction.loader,
        "path": str(Path(path).absolute()),
        "environment": users_environment(os.environ),
    }
    with tempfile.TemporaryDirectory(prefix="convert-") as folder:
        try:
            answer = ask(
                SCRIPT, Path(folder), question, what=prediction.loader,
                allowance=Allowance(seconds), python=python,
            )  # fmt: skip
        except EnvironmentFault as e:  # it died, hung, or ate the memory: that is how it ends
            answer = {"outcome": "fails", "error": "", "message": str(e)}
    return judged(prediction, answer)


def judged(prediction: Prediction, answer: dict[str, str]) -> Prediction:
    """Return a prediction with what was measured: the measurement counts."""
    outcome, error, message = answer["outcome"], answer["error"], answer["message"]
    measured = "" if outcome == "loads" else f"{error}: {message}" if error else message
    agrees = outcome == prediction.outcome
    said = prediction.message[:SAME]
    same = error == prediction.error and message.startswith(said)
    if agrees and (outcome == "loads" or same):
        check = "confirmed"
    elif agrees:
        check = "confirmed, with another message"
    elif prediction.outcome == "unknown":
        check = "confirmed"
    else:
        check = f"contradicted: predicted {prediction.outcome}"
    kept = prediction if agrees else replace(prediction, cause="", why="", mends="")
    return replace(
        kept,
        outcome="loads" if outcome == "loads" else "fails",
        error=error, message=message, check=check, measured=measured,
    )  # fmt: skip
