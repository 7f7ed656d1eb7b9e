"""What CUDA requires of a driver and of a GPU."""

import re
from collections.abc import Iterable

from converter.doctor.host import Version, parse_release

# Version of CUDA → the oldest Linux driver that runs programs built for it. From 11.1 on, the
# driver of the first release of a major version runs all of them (minor version compatibility).
# Spec: https://docs.nvidia.com/cuda/cuda-toolkit-release-notes/index.html, tables 2 and 3
# fmt: off
MINIMUM_DRIVER: tuple[tuple[Version, str], ...] = (
    ((13, 0), "580.65.06"),
    ((12, 0), "525.60.13"),
    ((11, 1), "450.80.02"),
    ((11, 0), "450.36.06"),
    ((10, 2), "440.33"),
    ((10, 1), "418.39"),
    ((10, 0), "410.48"),
    ((9, 2),  "396.26"),
    ((9, 1),  "390.46"),
    ((9, 0),  "384.81"),
    ((8, 0),  "375.26"),
)
# fmt: on
# Branch of a driver → the newest CUDA that it supports. Spec: the same tables.
_BRANCHES: tuple[tuple[int, tuple[int, int]], ...] = (
    (580, (13, 0)),
    (575, (12, 9)),
    (570, (12, 8)),
    (565, (12, 7)),
    (560, (12, 6)),
    (555, (12, 5)),
    (550, (12, 4)),
    (545, (12, 3)),
    (535, (12, 2)),
    (530, (12, 1)),
    (525, (12, 0)),
    (520, (11, 8)),
    (515, (11, 7)),
    (510, (11, 6)),
    (495, (11, 5)),
    (470, (11, 4)),
    (465, (11, 3)),
    (460, (11, 2)),
    (455, (11, 1)),
    (450, (11, 0)),
    (440, (10, 2)),
    (418, (10, 1)),
    (410, (10, 0)),
    (396, (9, 2)),
    (390, (9, 1)),
    (384, (9, 0)),
    (375, (8, 0)),
)  # fmt: skip


def find_minimum_driver(cuda: str) -> str:
    """Return the oldest driver that runs programs built for a CUDA; "" if unknown."""
    release = (*parse_release(cuda), 0)[:2]  # "12" is 12.0
    return next((d for first, d in MINIMUM_DRIVER if len(release) == 2 and release >= first), "")


def find_newest_cuda(driver: str) -> tuple[int, int] | None:
    """Return the newest CUDA that a driver supports; None if unknown."""
    major = (parse_release(driver) or (0,))[0]
    return next((cuda for branch, cuda in _BRANCHES if major >= branch), None)


def runs_on(capability: tuple[int, int], architectures: Iterable[str]) -> bool:
    """Return whether a build for these architectures has code that a GPU runs.

    ``sm_86`` is machine code for 8.6 and later within 8.x. ``compute_86`` is PTX, which the driver
    compiles for 8.6 and everything later. The suffix of ``sm_90a`` restricts it to 9.0, the suffix
    ``f`` to the family.
    Spec: https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#application-compatibility
    """
    for text in architectures:
        match = re.fullmatch(r"(sm|compute)_(\d+)(\d)([a-z]?)", text)
        if match is None:
            continue
        built = (int(match[2]), int(match[3]))
        if match[4] == "a":
            fits = capability == built
        elif match[1] == "sm" or match[4] == "f":
            fits = capability[0] == built[0] and capability >= built
        else:
            fits = capability >= built
        if fits:
            return True
    return False
