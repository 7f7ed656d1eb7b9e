"""``convert doctor [SOURCE]``: why an artifact does not load here, and what to do about it."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from converter.cli.references import Given, fetching, said
from converter.cli.terminal import say

if TYPE_CHECKING:  # nothing of the doctor is imported for `convert --help`
    from converter.doctor.advice import Advice
    from converter.doctor.diagnosis import Diagnosis
    from converter.doctor.findings import Finding, Prediction
    from converter.doctor.host import Host, Package
    from converter.doctor.source import Source

MESSAGE = 320  # characters of a loader's message on a terminal; --json has all of them
LIBRARIES = ("cudart", "cudnn", "cublas", "nccl")  # those shown on a terminal
SHOWN = 12  # lines of one list


@fetching("source")
def doctor(
    source: Annotated[
        Given | None,
        typer.Argument(metavar="[SOURCE]", help="An artifact that does not load here."),
    ] = None,
    from_format: Annotated[
        str | None,
        typer.Option("--from", metavar="FORMAT", help="The source's format; else by content."),
    ] = None,
    python: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH", help="The Python whose packages to look at. Default: convert's own."
        ),
    ] = None,
    run: Annotated[
        bool,
        typer.Option(
            "--run",
            help="Confirm predictions: really call the official loaders, safely, in children.",
        ),
    ] = False,
    fast: Annotated[
        bool,
        typer.Option("--fast", help="Import no framework, not even in a child: records alone."),
    ] = False,
    json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document on standard output.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show tracebacks of errors.")
    ] = False,
) -> None:
    """Say why SOURCE does not load here, or what is wrong with this host.

    Exits with 7 where an error is found, or SOURCE's usual loader does not open it here.
    """
    del verbose  # `run` of the application reads it
    from converter.doctor.diagnosis import diagnose

    found = diagnose(
        source,
        format=from_format,
        python=python or "",
        run=run,
        fast=fast,
        name=said(str(source)) if source is not None else "",
    )
    if json:
        from converter.cli.render import document

        document(found.plain())
    elif found.source is None:
        _print_host(found)
    else:
        _print_source(found, found.source)
    if found.exit_code:
        raise typer.Exit(found.exit_code)


def _print_host(found: "Diagnosis") -> None:
    host = found.host
    _print_machine(host)
    _title("frameworks")
    _print_frameworks(host)
    _print_findings(found.findings)
    if not found.findings:
        _title("nothing is wrong")
    say("")
    say("For an artifact: convert doctor SOURCE")


def _print_source(found: "Diagnosis", source: "Source") -> None:
    host = found.host
    _row("source", source.path)
    _row("format", f"{source.format} ({source.evidence})")
    _row("variant", source.variant)
    _row("holds", f"{source.tensors} tensors, {source.parameters:,} parameters")
    _title("recorded")
    _row("versions", _pairs(source.recorded) or "none")
    devices = ", ".join(f"{d} x{n}" for d, n in _few(source.devices.items()))
    _row("devices", devices or "none")
    _row("distribution", _pairs(source.distribution))
    for finding in source.findings[:SHOWN]:
        _row("names code", f"{finding.kind}: {finding.subject} in {finding.where}")
    _title("not recorded")
    for text in source.not_recorded or ("nothing that matters here",):
        say(f"  {text}")
    _title("here")
    _row("python", f"{host.python} ({host.executable})")
    _row("nvidia", _describe_nvidia(host))
    _print_frameworks(host, only=_list_loader_packages(found))
    for index, difference in enumerate(found.differences):
        if index == 0:
            _title("differs")
        _row(difference.what, f"recorded {difference.recorded}; here {difference.here}")
    _title("official loaders")
    previous = ""
    for prediction in found.predictions:
        _print_prediction(prediction, previous)
        previous = prediction.message
    if not found.predictions:
        say("  no single call of a framework opens this format")
    _print_findings(found.findings)
    if found.advice is not None:
        _print_advice(found.advice)
    if found.others:
        say("")
        say(f"{len(found.others)} findings do not concern this source: convert doctor")


def _print_machine(host: "Host") -> None:
    from converter.byte_sizes import readable_size

    _title("host", first=True)
    _row("python", f"{host.python} ({host.executable})")
    _row("system", f"{host.system}, {host.machine}")
    cpu = host.cpu
    _row(
        "cpu",
        f"{cpu.model}, {cpu.cores} cores, {readable_size(cpu.memory_bytes)} of memory"
        + (f" ({' '.join(cpu.features)})" if cpu.features else ""),
    )
    _row("nvidia", _describe_nvidia(host))
    for index, gpu in enumerate(host.nvidia.gpus):
        sm = "unknown capability"
        if gpu.capability:
            sm = f"sm_{gpu.capability[0]}{gpu.capability[1]}"
        memory = f", {readable_size(gpu.memory_bytes)}" if gpu.memory_bytes else ""
        _row(f"  GPU {index}", f"{gpu.name}, {sm}{memory}{', MIG' if gpu.mig else ''}")
    _row("rocm", host.rocm)
    libraries = [x for x in host.libraries if x.name in LIBRARIES]
    for library in libraries[:SHOWN]:
        _row(library.name, f"{library.version} ({library.origin}, {library.path})")
    if len(libraries) > SHOWN:
        _row("", f"… and {len(libraries) - SHOWN} more: --json lists all")
    if not any(x.name == "cudnn" for x in libraries):
        _row("cudnn", "none found")
    for name, value in host.variables.items():
        _row("variable", f"{name}={value}")


def _describe_nvidia(host: "Host") -> str:
    nvidia = host.nvidia
    if not nvidia.driver:
        gpus = f"{nvidia.pci_gpus} GPU(s) on the bus" if nvidia.pci_gpus else "no GPU"
        return f"{gpus}, no driver"
    cuda = f", for CUDA up to {nvidia.cuda[0]}.{nvidia.cuda[1]}" if nvidia.cuda else ""
    return f"driver {nvidia.driver}{cuda} ({nvidia.via}); {len(nvidia.gpus)} GPU(s)"


def _print_frameworks(host: "Host", only: Iterable[str] | None = None) -> None:
    from converter.doctor.host import PACKAGES

    wanted = PACKAGES if only is None else tuple(only)
    for name in PACKAGES:
        package = host.package(name)
        if package is not None and name in wanted:
            _row(name, f"{package.version}{_describe_build(package)}{_list_devices(host, name)}")
    for name in wanted if only is not None else ():
        if host.package(name) is None:
            _row(name, "not installed")


def _describe_build(package: "Package") -> str:
    build = package.build
    if not build or "cuda" not in build:
        return ""
    if build.get("cuda"):
        return f", built for CUDA {build['cuda']}"
    if build.get("hip"):
        return ", built for ROCm"
    return ", built without CUDA"


def _list_devices(host: "Host", name: str) -> str:
    """Return in words what the module of a package sees, if it was imported."""
    from converter.doctor.probes.host import FRAMEWORKS

    module = next((module for module, names in FRAMEWORKS.items() if name in names), name)
    seen = host.seen.get(module)
    if seen is None:
        return ""
    if seen.problem:
        return ", cannot be imported"
    return f"; sees {', '.join(seen.devices)}" if seen.devices else ""


def _list_loader_packages(found: "Diagnosis") -> list[str]:
    """Return the packages that the predicted loaders belong to."""
    from converter.doctor.probes.host import FRAMEWORKS

    names: dict[str, None] = {}
    for prediction in found.predictions:
        name = prediction.framework.replace("_", "-")
        group = FRAMEWORKS.get(name, (name,))
        names[next((n for n in group if found.host.package(n)), name)] = None
    return list(names)


def _print_prediction(prediction: "Prediction", previous: str) -> None:
    version = f"{prediction.framework} {prediction.version}"
    if prediction.installed:
        say(f"  {prediction.loader}  {prediction.outcome} ({prediction.check}; {version})")
    else:
        say(f"  {prediction.loader}  fails: {prediction.framework} is not installed")
        say(f"    with {version}: {prediction.outcome}")
    if prediction.message and prediction.message == previous:
        say("    with the same message")
        return
    if prediction.message:
        error = f"{prediction.error}: " if prediction.error else ""
        say(f"    {error}{_shorten(prediction.message)}")
    if prediction.why:
        say(f"    because {prediction.why}")
    if prediction.mends:
        say(f"    goes with: {prediction.mends}")


def _shorten(message: str) -> str:
    """Return a message on one line: its beginning and its end, which often has the cause."""
    text = re.sub(r"\033\[\d*m", "", " ".join(message.split()))
    if len(text) <= MESSAGE:
        return text
    return f"{text[: MESSAGE // 2]} … {text[-MESSAGE // 2 :]}"


def _print_findings(found: "Iterable[Finding]") -> None:
    for index, finding in enumerate(found):
        if index == 0:
            _title("findings")
        say(f"  {finding.severity:<8} {finding.what}")
        say(f"  {'':<8} {finding.why}")
        if finding.fix:
            say(f"  {'':<8} -> {finding.fix}")


def _print_advice(advice: "Advice") -> None:
    _title("what convert does")
    if advice.why:
        say(f"  {'device ' + advice.device + ': ' if advice.device else ''}{advice.why}")
    for command in advice.commands:
        say(f"  {command.command}")
        say(f"      {command.why}")


def _title(text: str, *, first: bool = False) -> None:
    if not first:
        say("")
    say(text)


def _row(label: str, text: str) -> None:
    if text:
        say(f"{label:<13} {text}")


def _few(pairs: Iterable[Any]) -> list[Any]:
    return list(pairs)[:SHOWN]


def _pairs(table: Mapping[str, Any]) -> str:
    return ", ".join(f"{k} {str(v)[:60]}" for k, v in _few(table.items()))
