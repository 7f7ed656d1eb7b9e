"""Make the pictures of the documents again, from what the program prints and measures.

    python tools/docs/pictures.py [terminal] [report] [inspect] [verify] [benchmarks]

- ``terminal.svg``: two commands in a pseudo-terminal.
- ``report.png``: the page of a batch of fixtures, in Chromium.
- ``inspect.png``: the page of a model.
- ``verify.png``: the page of a verification that failed; it needs TensorFlow and onnx.
- ``benchmarks.svg``: a chart of the table "Keras `.h5` to ONNX" in docs/benchmarks.md.
"""

import fcntl
import html
import io
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
from pathlib import Path

from pages import ROOT

IMAGES = ROOT / "docs" / "images"
COLUMNS = 104
FILES = {
    "checkpoint.pt": "fixtures/demo/checkpoint.pt",
    "model.h5": "fixtures/keras/keras2_recurrent.h5",
    "ranker": "fixtures/tensorflow/mirrored_devices",
    "traced.pt": "fixtures/torch_moved/traced-cuda0.pt",
}
COMMANDS = ("convert ls .", "convert checkpoint.pt --to torch --device cpu")
IMAGE_MODEL = "fixtures/verify/image.h5"
REGISTRY = ("demo", "keras", "tensorflow", "torch", "torch_devices", "verify")
# Without the web fonts that rich's own format loads.
SVG = """<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace;
  font-size: {char_height}px; line-height: {line_height}px; }}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: sans-serif; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def run_in_terminal(command: str, folder: Path) -> str:
    """Return what a command writes to a terminal of `COLUMNS` columns, colours included."""
    us, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, COLUMNS, 0, 0))
    environment = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "COLUMNS")}
    environment |= {
        "TERM": "xterm-256color", "OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3",
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }  # fmt: skip
    process = subprocess.Popen(
        ["bash", "-c", command], cwd=folder, env=environment,
        stdin=terminal, stdout=terminal, stderr=terminal, close_fds=True,
    )  # fmt: skip
    os.close(terminal)
    parts = []
    while True:
        try:
            part = os.read(us, 1 << 16)
        except OSError:  # the last process has closed it
            break
        if not part:
            break
        parts.append(part)
    os.close(us)
    assert process.wait() == 0, b"".join(parts).decode()
    return b"".join(parts).decode().replace("\r\n", "\n")


def terminal() -> str:
    """Return the picture of the terminal."""
    from rich.console import Console
    from rich.text import Text

    console = Console(record=True, width=COLUMNS, file=io.StringIO())
    with tempfile.TemporaryDirectory() as folder:
        for name, source in FILES.items():
            put = shutil.copytree if (ROOT / source).is_dir() else shutil.copy
            put(ROOT / source, Path(folder, name))
        for i, command in enumerate(COMMANDS):
            if i:
                console.print()
            console.print(Text.assemble(("$ ", "bold green"), (command, "bold")))
            console.print(Text.from_ansi(run_in_terminal(command, Path(folder)).rstrip("\n")))
    svg = console.export_svg(title="convert", code_format=SVG, unique_id="terminal")
    return "\n".join(line.rstrip() for line in svg.splitlines()) + "\n"


def words(svg: str) -> str:
    """Return the text of a picture, without times: what must be current."""
    found = re.findall(r"<text[^>]*>([^<]*)</text>", svg)
    text = " ".join(html.unescape(part).replace("\xa0", " ").strip() for part in found)
    return " ".join(re.sub(r"\d+\.\d+ s\b", "T s", text).split())


def photograph(page: Path, path: Path, size: tuple[int, int] = (1400, 900)) -> None:
    """Write the picture of a page."""
    sys.path.insert(0, str(ROOT / "tests" / "support"))
    from chromium import Browser

    ready = "document.documentElement?.dataset.ready || document.documentElement?.dataset.built"
    with tempfile.TemporaryDirectory() as profile, Browser(Path(profile)) as browser:
        browser.show(page.as_uri(), size=size)
        browser.until(ready)
        path.write_bytes(browser.picture())


def run_convert(folder: Path, *arguments: str) -> str:
    """Run a command of convert in a folder, and return what it printed; it may fail."""
    command = [sys.executable, "-m", "converter", *arguments]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment)
    return done.stdout + done.stderr


def report(path: Path) -> None:
    """Write the picture of a batch's report."""
    with tempfile.TemporaryDirectory() as scratch:
        models = Path(scratch, "models")
        for name in REGISTRY:
            shutil.copytree(ROOT / "fixtures" / name, models / name)
        broken = models / "keras" / "keras2_sequential.h5"
        broken.write_bytes(broken.read_bytes()[:900])
        page = Path(scratch, "report.html")
        said = run_convert(Path(scratch), "batch", "models", "-o", "out", "--report", "report.html")
        assert page.exists(), said
        photograph(page, path)


def inspect(path: Path) -> None:
    """Write the picture of a model's page."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copy(ROOT / IMAGE_MODEL, folder / "model.h5")
        said = run_convert(folder, "inspect", "model.h5", "--html", "model.html")
        assert (folder / "model.html").exists(), said
        photograph(folder / "model.html", path, size=(1400, 1500))


def verify(path: Path) -> None:
    """Write the picture of a verification's page: one channel of a kernel is larger by 1 %."""
    import onnx

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copy(ROOT / IMAGE_MODEL, folder / "model.h5")
        run_convert(folder, "model.h5", "-o", "model.onnx", "--verify", "weights")
        model = onnx.load(folder / "model.onnx")
        kernel = next(t for t in model.graph.initializer if t.name.startswith("body/wide/Trans"))
        array = onnx.numpy_helper.to_array(kernel).copy()
        array[0] *= 1.01
        kernel.CopyFrom(onnx.numpy_helper.from_array(array, kernel.name))
        onnx.save(model, folder / "model.onnx")
        said = run_convert(folder, "verify", "model.h5", "model.onnx", "--html", "errors.html")
        assert (folder / "errors.html").exists(), said
        photograph(folder / "errors.html", path, size=(1400, 1000))


def benchmarks() -> str:
    """Return the chart of a table of docs/benchmarks.md."""
    text = (ROOT / "docs/benchmarks.md").read_text().split("### Keras `.h5` to ONNX")[1]
    rows = [
        [cell.strip() for cell in line.strip("| \n").split("|")]
        for line in text[: text.index("\n### ")].splitlines()
        if line.startswith("| ")
    ]
    kinds, models = rows[0][1:4], rows[1:]
    longest = max(float(cell.split(" s")[0]) for row in models for cell in row[1:4])
    colours = ("#3949ab", "#b0bec5", "#cfd8dc")
    left, scale, bar, gap = 170, 560 / longest, 13, 16
    parts, y = [], 62
    for i, (kind, colour) in enumerate(zip(kinds, colours, strict=True)):
        x = left + 190 * i
        parts.append(f'<rect x="{x}" y="33" width="12" height="12" fill="{colour}"/>')
        parts.append(f'<text x="{x + 18}" y="44">{html.escape(kind.strip("`"))}</text>')
    for name, *cells in models:
        parts.append(
            f'<text x="{left - 10}" y="{y + 24}" text-anchor="end">{html.escape(name)}</text>'
        )
        for cell, colour in zip(cells[:3], colours, strict=True):
            seconds = float(cell.split(" s")[0])
            parts.append(
                f'<rect x="{left}" y="{y}" width="{seconds * scale:.1f}" height="{bar - 2}" fill="{colour}"/>'
            )
            parts.append(
                f'<text class="figure" x="{left + seconds * scale + 5:.1f}" y="{y + 10}">{cell.split(",")[0]}</text>'
            )
            y += bar
        y += gap
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 800 {y}" role="img">\n'
        "<style>text { font: 13px system-ui, sans-serif; fill: #263238 }"
        " .figure { font-size: 11px; fill: #546e7a } .title { font-weight: bold }</style>\n"
        f'<rect width="800" height="{y}" rx="6" fill="#fff"/>\n'
        '<text class="title" x="20" y="22">Keras .h5 to ONNX, whole process, seconds (less is better)</text>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def main(names: list[str]) -> None:
    IMAGES.mkdir(exist_ok=True)
    for name in names or ["terminal", "report", "inspect", "verify", "benchmarks"]:
        if name in ("report", "inspect", "verify"):
            globals()[name](IMAGES / f"{name}.png")
        else:
            (IMAGES / f"{name}.svg").write_text(globals()[name]())


if __name__ == "__main__":
    main(sys.argv[1:])
