"""What an error says to do works. Placeholders (BASE, OUT) are filled in, nothing else is added."""

import ast
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_lines import check_command
from repository import FIXTURES, ROOT

from converter.cli import COMMANDS
from converter.cli.app import run
from converter.cli.help_pages import DEFAULT

SOURCES = {
    "a.pt": "demo/checkpoint.pt",
    "m.h5": "keras/keras2_sequential.h5",
    "p.h5": "keras/keras2_recurrent.h5",  # without code of its own
    "many/a/a.pt": "demo/checkpoint.pt",
    "many/b/m.h5": "keras/keras2_sequential.h5",
    "old.safetensors": "fsdp/expected.safetensors",
    "adapter": "peft/lora.adapter",
    "base.safetensors": "peft/lora.base.safetensors",
    "heads": "verify_tensorflow/heads",
    "gptq": "hf_quantized/gptq4",
    "g.onnx": "onnx/dtypes.onnx",
}

# What fails, what its message says to do, and that done.
# fmt: off
ROWS = [
    ("a.pt -o old.safetensors", "replace it: --force", "a.pt -o old.safetensors --force"),
    ("a.pt -o x.onnx", "Convert the weights alone: --to safetensors", "a.pt --to safetensors"),
    ("a.pt --to keras", "--to safetensors writes the weights alone", "a.pt --to safetensors"),
    ("adapter --to onnx", "--merge-adapter BASE",
     "adapter --merge-adapter base.safetensors --to safetensors"),
    ("many", "`convert ls many`", "ls many"),
    ("many", "`convert batch many -o OUT`", "batch many -o OUT"),
    ("inspekt a.pt", "Did you mean `convert inspect`?", "inspect a.pt"),
    ("a.pt --to safetensor", "Did you mean 'safetensors'?", "a.pt --to safetensors"),
    ("a.pt --to torch --device coda:1", "Did you mean 'cuda:1'?",
     "a.pt --to torch --device cuda:1"),
    ("a.pt --to torch", "--device with cpu", "a.pt --to torch --device cpu"),
    ("a.pt --forse", "Did you mean --force", "a.pt --force"),
    ("a.pt --forse", "`convert SOURCE --help`", "SOURCE --help"),
    ("a.pt m.h5 -o x.onnx", "-o with a name that ends in /", "a.pt m.h5 -o x/"),
    ("heads --signature nope -o h.onnx", "kept", "heads --signature kept -o h.onnx"),
    ("heads --signature kept --signature doubled -o h.onnx", "-o a folder's name",
     "heads --signature kept --signature doubled --to onnx -o h/"),
    ("gptq -o q.onnx --precision fp16", "--dequantize makes floats", "gptq --to hf --dequantize"),
    ("note.txt", "`convert formats`", "formats"),
    ("m.h5 --strict-safety -o x.onnx", "Without --strict-safety", "m.h5 -o x.onnx"),
    ("m.h5 --to triton", "--device with cpu", "m.h5 --to triton --device cpu"),
    ("m.h5 --to triton --device cpu --triton-option max_batch=3", "Did you mean 'max_batch_size'?",
     "m.h5 --to triton --device cpu --triton-option max_batch_size=3"),
    ("p.h5 --to onnx -o m.keras", "--to keras writes .keras", "p.h5 --to keras -o m.keras"),
    ("m.h5 -o -", "Name it: -o", "m.h5 -o x.onnx"),
    ("batch many -o many", "it may be inside the registry", "batch many -o many/out"),
    ("inspect a.pt m.h5 --html p.html", "one source", "inspect m.h5 --html p.html"),
    ("check m.h5", "`convert verify SOURCE CONVERTED`", "verify old.safetensors old.safetensors"),
    ("a.pt --include optimiser", "optimizer", "a.pt --include optimizer"),
    ("m.h5 --atol x", "[OUT:]X", "m.h5 --atol 1e-3"),
    ("g.onnx --opset 12 -o o.onnx", "18 to 22", "m.h5 -o o.onnx --opset 18"),
    ("ops keraz", "keras", "ops keras"),
]
# fmt: on


def call(line: str) -> int:
    words = line.split()
    return run(words if words[0] in COMMANDS else [DEFAULT, *words])


@pytest.mark.thorough
@pytest.mark.parametrize(("wrong", "says", "right"), ROWS)
def test_a_remedy_that_is_printed_works(
    wrong: str, says: str, right: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    for name in {*wrong.split(), *right.split()} & {*SOURCES, "many"}:
        for file in [one for one in SOURCES if one == name or one.startswith(f"{name}/")]:
            source, target = FIXTURES / SOURCES[file], tmp_path / file
            target.parent.mkdir(parents=True, exist_ok=True)
            (shutil.copytree if source.is_dir() else shutil.copy)(source, target)
    (tmp_path / "note.txt").write_text("no model")
    monkeypatch.chdir(tmp_path)
    assert call(wrong) in (2, 3, 4, 5)
    said = capsys.readouterr().err.rpartition("convert: error: ")[2]
    assert says in said, said
    assert call(right) == 0, capsys.readouterr().err


def texts() -> Iterator[str]:
    """Yield the strings of the library, X in place of what an f-string fills in."""
    for folder in ("converter", "formats"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.JoinedStr):
                    parts = (v.value if isinstance(v, ast.Constant) else "X" for v in node.values)
                    yield "".join(map(str, parts))
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    yield node.value


def test_commands_in_messages_can_be_parsed() -> None:
    commands = {c for text in texts() for c in re.findall(r"`+convert( [^`{}\n]+)`", text)}
    assert len(commands) > 10
    for command in commands:
        words = shlex.split(command.partition(" | ")[0])
        if words[:1] != ["…"]:
            check_command(words, is_complete=False)
