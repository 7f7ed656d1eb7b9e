"""``convert doctor [SOURCE]``: why an artifact does not load here, and what to do."""

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from converter.cli.parameters import From, Json, Verbose
from converter.cli.terminal import is_terminal, say
from formats.core.plurals import count, list_counts

if TYPE_CHECKING:  # keeps `convert --help` fast
    from converter.doctor.diagnosis import Diagnosis
    from converter.doctor.findings import Finding, Prediction
    from converter.doctor.host import Host, Package
    from converter.doctor.source import Source

MESSAGE = 320  # characters of a loader's message shown on a terminal; --json has the whole message
LIBRARIES = ("cudart", "cudnn", "cublas", "nccl")  # those shown on a terminal
SHOWN = 12  # lines of one list


def doctor(
    sources: Annotated[
        list[str] | None,
        typer.Argument(metavar="[SOURCE...]", help="Artifacts that do not load here."),
    ] = None,
    from_format: From = None,
    python: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH", help="The Python whose packages are examined. Default: convert's own."
        ),
    ] = None,
    fast: Annotated[
        bool,
        typer.Option(
            "--fast", help="Call no official loader: predict what it does. Import no framework."
        ),
    ] = False,
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Say why SOURCE does not load here, or what is wrong with this host.

    Several sources are a table. Exits with 7 where an error is found, or a source's usual loader
    does not open it here.
    """
    from converter.api import diagnose
    from converter.cli.each import collect
    from converter.cli.progress import Spinner
    from converter.cli.render import document

    with Spinner(enabled=not json and is_terminal(sys.stderr)) as spinner:

        def ask(source: str | None) -> "Diagnosis":
            loaders = f"the official loaders of {source}" if source and not fast else "this host"
            spinner.start("asking", loaders)
            try:
                return diagnose(source, format=from_format, python=python or "", fast=fast)
            finally:
                spinner.stop()

        with collect(sources or [None], ask, verbose=verbose) as found:
            if len(found) > 1 or len(sources or ()) > 1:
                _print_several(found, as_json=json)
            elif json:
                document(found[0].plain())
            elif found[0].source is None:
                _print_host(found[0])
            else:
                _print_source(found[0], found[0].source)
            code = max((one.exit_code for one in found), default=0)
            if code:
                raise typer.Exit(code)


def _print_several(found: "Sequence[Diagnosis]", *, as_json: bool) -> None:
    if as_json:
        from converter.cli.render import document

        document([one.plain() for one in found])
    else:
        from converter.cli import tables

        tables.diagnoses(found)


def _print_host(found: "Diagnosis") -> None:
    from converter.doctor.host import PACKAGES

    say("host")
    _print_rows(_describe_machine(found.host))
    _print_section("frameworks")
    _print_rows(_describe_packages(found.host, [p for p in PACKAGES if found.host.package(p)]))
    if found.findings:
        _print_section("findings", _describe_findings(found.findings))
    else:
        _print_section("nothing is wrong")
    _print_section("For an artifact: convert doctor SOURCE")


def _print_source(found: "Diagnosis", source: "Source") -> None:
    host = found.host
    tensors = count("tensor", source.tensors)
    devices = list_counts(dict(list(source.devices.items())[:SHOWN]))
    _print_rows([
        ("source", source.path),
        ("format", f"{source.format} ({source.evidence})"),
        ("variant", source.variant),
        ("holds", f"{tensors}, {count('parameter', source.parameters)}"),
    ])  # fmt: skip
    _print_section("recorded")
    _print_rows([
        ("versions", _join_pairs(source.recorded) or "none"),
        ("devices", devices or "none"),
        ("distribution", _join_pairs(source.distribution)),
        *(("names code", f"{f.kind}: {f.subject} in {f.where}") for f in source.findings[:SHOWN]),
    ])  # fmt: skip
    _print_section("not recorded", source.not_recorded or ("nothing that matters here",))
    _print_section("here")
    _print_rows([
        ("python", f"{host.python} ({host.executable})"),
        ("nvidia", _describe_nvidia(host)),
        *_describe_packages(host, _list_loader_packages(found)),
    ])  # fmt: skip
    if found.differences:
        _print_section("differs")
        _print_rows((d.what, f"recorded {d.recorded}; here {d.here}") for d in found.differences)
    nothing = ("no single call of a framework opens this format",)
    _print_section("official loaders", _describe_predictions(found.predictions) or nothing)
    if found.findings:
        _print_section("findings", _describe_findings(found.findings))
    if found.advice is not None:
        advice = found.advice
        device = f"device {advice.device}: " if advice.device else ""
        commands = [line for c in advice.commands for line in (c.command, f"    {c.why}")]
        why = [f"{device}{advice.why}"] if advice.why else []
        _print_section("what convert does", [*why, *commands])
    if found.others:
        others = len(found.others)
        _print_section(f"Findings that do not concern this source: {others} (convert doctor)")


def _describe_machine(host: "Host") -> list[tuple[str, str]]:
    from converter.byte_sizes import readable_size

    cpu, libraries = host.cpu, [x for x in host.libraries if x.name in LIBRARIES]
    rows = [
        ("python", f"{host.python} ({host.executable})"),
        ("system", f"{host.system}, {host.machine}"),
        ("cpu", f"{cpu.model}, {cpu.cores} cores, {readable_size(cpu.memory_bytes)} of memory"
                + (f" ({' '.join(cpu.features)})" if cpu.features else "")),
        ("nvidia", _describe_nvidia(host)),
    ]  # fmt: skip
    for index, gpu in enumerate(host.nvidia.gpus):
        major, minor = gpu.capability or ("", "")
        capability = f"sm_{major}{minor}" if gpu.capability else "unknown capability"
        memory = f", {readable_size(gpu.memory_bytes)}" if gpu.memory_bytes else ""
        mig = ", MIG" if gpu.mig else ""
        rows.append((f"  GPU {index}", f"{gpu.name}, {capability}{memory}{mig}"))
    rows.append(("rocm", host.rocm))
    rows += [(x.name, f"{x.version} ({x.origin}, {x.path})") for x in libraries[:SHOWN]]
    if len(libraries) > SHOWN:
        rows.append(("", f"… and {len(libraries) - SHOWN} more: --json lists all"))
    if not any(x.name == "cudnn" for x in libraries):
        rows.append(("cudnn", "none found"))
    return rows + [("variable", f"{name}={value}") for name, value in host.variables.items()]


def _describe_nvidia(host: "Host") -> str:
    nvidia = host.nvidia
    if not nvidia.driver:
        gpus = f"{count('GPU', nvidia.pci_gpus)} on the bus" if nvidia.pci_gpus else "no GPU"
        return f"{gpus}, no driver"
    cuda = f", for CUDA up to {nvidia.cuda[0]}.{nvidia.cuda[1]}" if nvidia.cuda else ""
    return f"driver {nvidia.driver}{cuda} ({nvidia.via}); {count('GPU', len(nvidia.gpus))}"


def _describe_packages(host: "Host", names: Iterable[str]) -> list[tuple[str, str]]:
    """Return version, build and devices of packages, the installed ones first."""
    rows, missing = [], []
    for name in names:
        package = host.package(name)
        if package is None:
            missing.append((name, "not installed"))
        else:
            text = f"{package.version}{_describe_build(package)}{_describe_devices(host, name)}"
            rows.append((name, text))
    return rows + missing


def _describe_build(package: "Package") -> str:
    build = package.build
    if not build or "cuda" not in build:
        return ""
    if build.get("cuda"):
        return f", built for CUDA {build['cuda']}"
    return ", built for ROCm" if build.get("hip") else ", built without CUDA"


def _describe_devices(host: "Host", name: str) -> str:
    """Describe the devices that a package's module sees, if it was imported."""
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


def _describe_predictions(predictions: "Iterable[Prediction]") -> list[str]:
    lines: list[str] = []
    previous = ""
    for p in predictions:
        version = f"{p.framework} {p.version}"
        if p.installed:
            lines.append(f"{p.loader}  {p.outcome} ({p.check}; {version})")
        else:
            lines.append(f"{p.loader}  fails: {p.framework} is not installed")
            lines.append(f"  with {version}: {p.outcome}")
        if p.message and p.message == previous:
            lines.append("  with the same message")
            continue
        previous = p.message
        error = f"{p.error}: " if p.error else ""
        lines += [f"  {error}{_shorten(p.message)}"] if p.message else []
        lines += [f"  because {p.why}"] if p.why else []
        lines += [f"  works with: {p.mends}"] if p.mends else []
    return lines


def _shorten(message: str) -> str:
    """Return a message on one line: its beginning and its end, which often has the cause."""
    text = re.sub(r"\033\[\d*m", "", " ".join(message.split()))
    if len(text) <= MESSAGE:
        return text
    return f"{text[: MESSAGE // 2]} … {text[-MESSAGE // 2 :]}"


def _describe_findings(findings: "Iterable[Finding]") -> list[str]:
    lines: list[str] = []
    for finding in findings:
        lines += [f"{finding.severity:<8} {finding.what}", f"{'':<8} {finding.why}"]
        lines += [f"{'':<8} -> {finding.fix}"] if finding.fix else []
    return lines


def _print_section(title: str, lines: Iterable[str] = ()) -> None:
    say("")
    say(title)
    for line in lines:
        say(f"  {line}")


def _print_rows(rows: Iterable[tuple[str, str]]) -> None:
    for label, text in rows:
        if text:
            say(f"{label:<13} {text}")


def _join_pairs(table: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {str(value)[:60]}" for key, value in list(table.items())[:SHOWN])
