"""Names of TensorFlow's devices: what ``--device`` may say, and what a SavedModel is told.

Spec: https://github.com/tensorflow/tensorflow/blob/v2.21.0/tensorflow/core/util/device_name_utils.h
"""

import re

from formats.errors import UsageError

_SHORT = re.compile(r"/?(?:device:)?(?P<kind>cpu|gpu)(?::(?P<index>\d{1,4}))?", re.IGNORECASE)
_FULL = re.compile(
    r"/job:[A-Za-z][A-Za-z0-9_]*/replica:\d{1,6}/task:\d{1,6}/device:(?P<kind>CPU|GPU):\d{1,4}"
)
_KIND = re.compile(r"/(?:device:)?(?P<kind>[A-Za-z_]+):[\d*]+$")


def parse_device(text: str | None) -> str:
    """Return what nodes shall name: a device, or ``""`` for none.

    ``gpu`` is ``/device:GPU:0``: without job and task, so that it holds under whatever name a
    server runs. A full name is kept as it is.

    Raises:
        UsageError: It names no device.
    """
    if text is None or text == "none":
        return ""
    if _FULL.fullmatch(text):
        return text
    short = _SHORT.fullmatch(text)
    if short is None:
        raise UsageError(
            f"--device {text}",
            expected="none, cpu, gpu, GPU:1 or /job:localhost/replica:0/task:0/device:GPU:1",
        )
    return f"/device:{short['kind'].upper()}:{int(short['index'] or 0)}"


def kind_of(device: str) -> str:
    """Return ``CPU``, ``GPU``, ``TPU``, …; ``""`` where the name says none."""
    found = _KIND.search(device)
    return found["kind"].upper() if found else ""
