"""What a job leaves that was ended: its temporary files, and what it had begun to write."""

import shutil
from pathlib import Path

from converter import publish
from converter.job import Job
from converter.registries.catalog import scheme_of


def folder_of(scratch: Path, server: int, number: int) -> Path:
    """Return the folder for a job's temporary files.

    Args:
        scratch: Of the run.
        server: Pid of its server: another one counts from the start again.
        number: Of the job's order.
    """
    return scratch / f"{server}-{number}"


def remove(job: Job, folder: Path) -> None:
    """Remove what a job left; its process must be gone."""
    shutil.rmtree(folder, ignore_errors=True)
    if scheme_of(job.destination) == "":
        publish.sweep(Path(job.destination) / job.name)
