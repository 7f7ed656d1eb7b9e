"""The messages between a driver and its process in a Ray cluster.

Both ends run the same version of this program. Of artifacts, messages hold only names and records.
"""

from dataclasses import dataclass

from converter.executors.engine import Settings
from converter.jobs.job import Job


@dataclass(frozen=True, slots=True)
class Charter:
    """The configuration of the process, sent first.

    Attributes:
        settings: Settings of the executor.
        first: A job like those to come: nodes are checked for what it needs.
        task: Function that a child calls with its job, ``module:function``.
    """

    settings: Settings
    first: Job
    task: str


@dataclass(frozen=True, slots=True)
class Wanted:
    """Request for jobs; the answer is a list of at most ``jobs``, shorter when there are no more.

    Attributes:
        jobs: Number of jobs that the cluster has room for.
    """

    jobs: int
