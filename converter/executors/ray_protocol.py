"""The messages between a driver and its process in a Ray cluster.

Both ends are this version of this program; nothing of an artifact's is in it but names and records.
"""

from dataclasses import dataclass

from converter.executors.engine import Settings
from converter.jobs.job import Job


@dataclass(frozen=True, slots=True)
class Charter:
    """What the process is told before anything else.

    Attributes:
        settings: Of the executor.
        first: A job like those to come: nodes are looked at with what it needs.
        task: What a child does with its job, ``module:function``.
    """

    settings: Settings
    first: Job
    task: str


@dataclass(frozen=True, slots=True)
class Wanted:
    """The cluster has room for jobs: a list of at most so many is waited for, empty for no more.

    Attributes:
        jobs: How many.
    """

    jobs: int
