"""One job in one crash-isolated child, for callers that have processes of their own: Ray's workers.

The interface, fixed: ``run_isolated(job, scratch) -> Outcome``. It never raises for the job's sake:
crashes, ``job.needs.seconds`` and ``job.needs.memory_bytes`` are outcomes (see `Outcome.status`),
one attempt each; what comes of "lost" is the caller's. Where the caller is killed, so is all that
it started here. The scratch folder is made where it is missing; what the job left there is gone.
"""

from pathlib import Path

from converter.executors.engine import Settings
from converter.executors.orders import WORK
from converter.executors.processes import Processes
from converter.job import Job, Outcome


def run_isolated(job: Job, scratch: Path, *, task: str = WORK) -> Outcome:
    """Convert one artifact in a child process.

    Args:
        job: Which, how, and within what limits.
        scratch: Folder for temporary files, on this machine.
        task: What the child does with it, ``module:function``.

    Raises:
        EnvironmentFault: No process can be started.
    """
    scratch.mkdir(parents=True, exist_ok=True)
    with Processes(Settings(1, scratch, retries=0), task, preloads=task == WORK) as executor:
        (outcome,) = executor.run([job])
    return outcome
