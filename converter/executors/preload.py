"""Modules that a fork server imports before its first child.

No framework and no onnxruntime: they start threads, and run only in children of children. Each
child imports other modules itself; a test checks that none of our own modules is missing here.
"""

import pkgutil
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec

from converter.destinations.catalog import find_kind
from converter.jobs.job import Job
from converter.registries.catalog import KINDS, scheme_of
from converter.stores import s3
from converter.stores.fsspec_store import package_of
from converter.write.catalog import find_target

ALWAYS = (
    "numpy",
    "blake3",
    "ctypes",
    "datetime",
    "platform",
    "converter.environment",
    "converter.executors.worker",
    "converter.write.background",
    "converter.write.weight_files",
)
READERS = ("formats",)
GRAPHS = (
    "converter.lower",
    "converter.passes",
    "converter.devices.savedmodel",
    "converter.write.savedmodel",
)
MLFLOW = ("models", "runs")
WITH_GRAPHS = ("numpy.random", "converter.write.graph_files", "converter.graphs")


def preload(job: Job) -> None:
    """Import the modules that jobs like this one need."""
    for name in names(job):
        with suppress(Exception):  # an extra is missing or broken: the job that needs it reports it
            import_module(name)
    if any(url.partition(":")[0] in s3.SCHEMES for url in (job.source, job.destination)):
        s3.make_ready()


def names(job: Job) -> Iterator[str]:
    """Yield the modules to import, dependencies first."""
    yield from ALWAYS
    for kind in KINDS:
        if scheme_of(job.source) in kind.schemes or kind.schemes == ("*",):
            yield f"converter.registries.{kind.module}"
            break
    yield f"converter.destinations.{find_kind(job.destination).module}"
    for url in (job.source, job.destination):
        if "://" in url and (package := package_of(url)) is not None:
            yield package  # for s3:// the import takes a second
        elif scheme_of(url) in MLFLOW and find_spec("pyarrow") is None:
            yield "mlflow"  # takes as long; full mlflow imports pyarrow, which starts a thread
    for package in READERS:
        yield from _whole(package)
    target = find_target(job.options.to)
    yield f"converter.write.{target.module}"
    if target.lowers:
        yield "onnx"
        yield from WITH_GRAPHS
        for package in GRAPHS:
            yield from _whole(package)


def _whole(package: str) -> Iterator[str]:
    yield package
    path = import_module(package).__path__
    yield from (module.name for module in pkgutil.walk_packages(path, f"{package}."))
