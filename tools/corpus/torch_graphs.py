"""Convert the torch programs of a corpus to ONNX, and compare each with torch itself.

Real TorchScript archives record no inputs, and state dicts no program: `GUESSES` says, for each
artifact, what its code or its tensors' shapes suggest. That is test data, found by reading them.
"""

import json
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

import converter
from formats.errors import ConvertError

SUPPORT = Path(__file__).parents[2] / "tests" / "support"
PROGRAMS = f"torch_programs={Path(__file__).with_name('torch_programs.py')}"
ZOO = f"torch_zoo={SUPPORT / 'torch_zoo.py'}"


@dataclass(frozen=True)
class Guess:
    """How a program is called.

    Attributes:
        inputs: As ``--input`` has them.
        arch: Class of `torch_programs`, for a state dict.
        trust: Modules whose classes a pickle has.
    """

    inputs: tuple[str, ...] = ()
    arch: str = ""
    trust: tuple[str, ...] = ()


# By the end of a path.
GUESSES: dict[str, Guess] = {
    # TorchScript
    "foo2.pt": Guess(("x:float32:batch,5", "y:float32:batch,5")),
    "foo3.pt": Guess(("x:float32:4,n",)),
    "tests/foo.pt": Guess(("x:float32:batch,5", "y:float32:batch,5")),
    "identity.pt": Guess(("tokenized_data:int64:batch,77",)),
    "exported.method.dat": Guess(("x:float32:batch,10", "y:float32:batch,10")),
    "func.script.dat": Guess(("x:float32:batch,10", "y:float32:batch,10")),
    "l1000_100_10.script.dat": Guess(("input:float32:batch,1000",)),
    "model_micro.jit": Guess(("x:float32:batch,4000",)),
    "foo6.pt": Guess(("x:float32:batch,5",)),
    # state dicts and pickles
    "epoch=24-step=18750.ckpt": Guess(("x:float32:batch,784",), "Mnist"),
    "PPO_BipedalWalker-v2_0_0.pth": Guess(("state:float32:batch,24",), "ActorCritic"),
    "data/rnet.pt": Guess(("image:float32:batch,3,24,24",), "RNet"),
    "weights/mnist.pt": Guess(("x:float32:batch,1,28,28",), "Net"),
    "burn-import/data/mnist.pt": Guess(("x:float32:batch,1,28,28",), "", (PROGRAMS,)),
    "batch_norm/batch_norm2d.pt": Guess(("x:float32:batch,5,h,w",), "Normed"),
    "tests/buffer/buffer.pt": Guess(("x:float32:batch,3,3",), "Shifted"),
}
# What `python tests/support/torch_zoo.py FOLDER` writes: NAME-FORM.
ANIMALS = {
    "resnet": ("ResNet", "image:float32:batch,3,40,40"),
    "mobilenet": ("MobileNet", "image:float32:batch,3,32,32"),
    "swin": ("Swin", "image:float32:batch,3,32,32"),
    "vit": ("ViT", "image:float32:batch,3,32,32"),
    "tagger": ("Tagger", "tokens:int64:batch,9"),
    "decoder": ("Decoder", "tokens:int64:batch,9"),
}
ANIMAL = re.compile(r"(\w+)-(state_dict|module|trace|script|pt2)\.pt2?")
# Exit codes.
USAGE, UNSUPPORTED, UNSAFE = 2, 4, 5
OWN = ("--trust", "nobody trusts", "code of its own")


def guess_of(path: Path) -> tuple[Guess, str]:
    """Return how a program is called, and ``--arch`` for it."""
    animal = ANIMAL.fullmatch(path.name)
    if animal is not None and animal[1] in ANIMALS:
        factory, given = ANIMALS[animal[1]]
        arch = f"torch_zoo:{factory}" if animal[2] == "state_dict" else ""
        inputs = () if animal[2] == "pt2" else (given,)
        return Guess(inputs, "", (ZOO,) if animal[2] in ("state_dict", "module") else ()), arch
    for end, guess in GUESSES.items():
        if str(path).endswith(end):
            arch = f"torch_programs:{guess.arch}" if guess.arch else ""
            trust = (*guess.trust, *((PROGRAMS,) if arch else ()))
            return Guess(guess.inputs, guess.arch, trust), arch
    return Guess(), ""


def judge(path: Path, exporter: str, sweep) -> tuple[str, str]:
    """Return the verdict on one artifact, and what there is to say.

    Args:
        path: The artifact.
        exporter: Who makes the graph.
        sweep: The module `graphs`, which runs ``convert`` and judges what ``verify`` said.
    """
    try:
        bundle = converter.read(path)
    except ConvertError as e:
        return "WRONG", f"cannot be read: {e}"
    guess, arch = guess_of(path)
    if bundle.topology is None and not arch:
        return "no graph", f"{len(bundle.weights)} tensors, and no program is known for them"
    said = [f"--input={given}" for given in guess.inputs]
    said += [f"--trust={module}" for module in guess.trust] + ([f"--arch={arch}"] if arch else [])
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "model.onnx"
        made = sweep.run(
            str(path), "--to", "onnx", "-o", str(file), "--verify", "none", "--exporter", exporter,
            *said,
        )  # fmt: skip
        if made is None:
            return "WRONG", "converting took too long"
        if made.returncode:
            return refused(made.returncode, sweep.last(made))
        if refusal := sweep.refusal(file):
            return "WRONG", f"onnxruntime refuses it: {refusal}"
        compared = sweep.run("verify", str(path), str(file), "--json", *said)
        if compared is None:
            return "WRONG", "comparing took too long"
        verdict, detail = sweep.said_by(compared)
        return random(compared) or (verdict, f"{detail}; {by(made)}")


def refused(code: int, said: str) -> tuple[str, str]:
    """Return the verdict on what was not converted."""
    if code == UNSAFE or (code == UNSUPPORTED and any(word in said for word in OWN)):
        return "own code", said
    if code == UNSUPPORTED:
        return "gap", said
    if code == USAGE and "does not run on them" in said:
        return "no run", said  # torch refuses our guess, or does not run the program any more
    return "WRONG", f"exit code {code}: {said}"


def random(compared) -> tuple[str, str] | None:
    """Return the verdict on what differs from run to run by itself."""
    try:
        reason = json.loads(compared.stdout)["graph"]["reason"]
    except (ValueError, KeyError, TypeError):
        return None
    return ("random", reason) if "not comparable" in reason else None


def by(made) -> str:
    """Return who made a graph."""
    lines = [line for line in made.stderr.splitlines() if line.startswith("lowered")]
    return " ".join(lines[0].split()) if lines else "?"
