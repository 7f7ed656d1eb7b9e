"""Confirm predictions by calling the official loaders in child processes with limits.

A loader is called only where it is installed and where opening the artifact cannot run its author's
code: in its safe mode, and never on an artifact in which our reader found code.
"""

import os
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from converter.child.process import Allowance, ask
from converter.doctor.findings import Prediction
from converter.doctor.host import Host, parse_release
from converter.doctor.loaders.keras_training import find_foreign_module
from converter.doctor.loaders.torch import WEIGHTS_ONLY_SINCE
from converter.doctor.probes.host import CHILDREN, select_environment
from converter.doctor.source import Source
from formats.errors import DependencyError

SCRIPT = Path(__file__).parent / "loaders" / "call_loader.py"
SECONDS = 120.0
SAME = 40  # characters of a message that must agree


def confirm(
    predictions: Sequence[Prediction], source: Source, host: Host, *, seconds: float = SECONDS
) -> Iterator[Prediction]:
    """Yield each prediction with what its loader did, or with why it was not called."""
    reasons = [explain_refusal(p, source) for p in predictions]
    with ThreadPoolExecutor(CHILDREN) as pool:
        runs = [
            None if reason else pool.submit(_call, p, source.file, host.executable, seconds)
            for p, reason in zip(predictions, reasons, strict=True)
        ]
        for prediction, reason, run in zip(predictions, reasons, runs, strict=True):
            yield run.result() if run else replace(prediction, check=f"not run: {reason}")


def explain_refusal(prediction: Prediction, source: Source) -> str:
    """Return why a loader is not called; "" if it may be."""
    if not prediction.installed:
        return f"{prediction.framework} is not installed"
    loader = prediction.loader
    if loader.startswith("torch.export"):
        return "it evaluates expressions of the artifact"
    if loader.startswith("torch.jit") and source.torch and source.torch.sets_state:
        return "loading runs the archive's own code (__setstate__)"
    if loader.startswith("torch.load"):
        old = parse_release(prediction.version) < WEIGHTS_ONLY_SINCE
        return "this torch runs what a pickle names, by default" if old else ""
    foreign = find_foreign_module(source.keras.training) if source.keras else ""
    if "load_model" in loader and foreign:
        return f"compiling the model may import {foreign}, which its training configuration names"
    if source.findings:
        first = source.findings[0]
        return f"the artifact names code or files ({first.kind}: {first.subject})"
    return ""


def _call(prediction: Prediction, path: str, python: str, seconds: float) -> Prediction:
    question = {
        "loader": prediction.loader,
        "path": str(Path(path).absolute()),
        "environment": select_environment(os.environ),
    }
    with tempfile.TemporaryDirectory(prefix="convert-") as folder:
        try:
            answer = ask(
                SCRIPT, Path(folder), question, what=prediction.loader,
                allowance=Allowance(seconds), python=python,
            )  # fmt: skip
        except DependencyError as e:  # a crash, a timeout or too much memory is the outcome
            answer = {"outcome": "fails", "error": "", "message": str(e)}
    return apply_answer(prediction, answer)


def apply_answer(prediction: Prediction, answer: dict[str, str]) -> Prediction:
    """Return a prediction corrected by the loader's answer: the measurement counts."""
    outcome, error, message = answer["outcome"], answer["error"], answer["message"]
    agrees = outcome == prediction.outcome
    start = prediction.message[:SAME]
    if prediction.outcome == "unknown":
        check = "confirmed"
    elif not agrees:
        check = f"contradicted: predicted {prediction.outcome}"
    elif outcome == "loads" or (error == prediction.error and message.startswith(start)):
        check = "confirmed"
    else:
        check = "confirmed, with another message"
    kept = prediction if agrees else replace(prediction, cause="", why="", mends="")
    return replace(
        kept,
        outcome="loads" if outcome == "loads" else "fails",
        error=error,
        message=message,
        check=check,
        measured="" if outcome == "loads" else f"{error}: {message}" if error else message,
    )
