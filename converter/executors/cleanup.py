"""Remove the temporary files and partial outputs of jobs that were stopped."""

import shutil
from pathlib import Path

from converter.executors.process_monitor import is_alive
from converter.filesystem import atomic_output
from converter.jobs.job import Job
from converter.registries.catalog import scheme_of


def remove(job: Job, scratch: Path) -> None:
    """Remove the files of a job whose process is gone.

    Args:
        job: The job.
        scratch: Temporary folder of all jobs; `converter.executors.worker` names the subfolders.
    """
    for folder in scratch.glob("job-*-*"):
        if not is_alive(int(folder.name.split("-")[1])):
            shutil.rmtree(folder, ignore_errors=True)
    if scheme_of(job.destination) == "":
        atomic_output.sweep(Path(job.destination) / job.name)
