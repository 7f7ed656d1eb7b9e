"""Run the steps of .docker/Dockerfile one by one, without Docker.

    python .ci/dockerfile.py FOLDER

FOLDER stands for the root of the image, of all of its stages, so that what one stage copies from
another is in place already. A command of RUN is run by this machine's bash and programs, with the
image's own absolute paths below FOLDER. At the end the image is started as ``docker run`` starts
it, without arguments and for a conversion. The stages of the target ``cuda`` differ from those of
the CPU by packages of several gigabytes, and are left out.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent.parent
OWN = re.compile(r"(?<![\w./-])/(?=(?:opt|source|work)\b)")  # absolute paths of the image
ACCOUNTS = ("passwd", "group", "shadow", "gshadow", "subuid", "subgid")


def read_steps(text: str) -> list[tuple[str, str]]:
    """Return instructions and their arguments, continued lines joined."""
    text = re.sub(r"\\\n\s*", "", re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE))
    found = (line.partition(" ") for line in text.splitlines() if line.strip())
    return [(word, rest.strip()) for word, _, rest in found]


def main(root: Path) -> None:
    """Run all steps but those of CUDA's stages, then start the image."""
    env, folder, stage = dict(os.environ), root, ""
    start: dict[str, list[str]] = {}

    def place(text: str) -> str:
        return OWN.sub(f"{root}/", text)

    def run(command: list[str]) -> None:
        subprocess.run(command, cwd=folder, env=env, check=True)

    for word, rest in read_steps((HERE / ".docker/Dockerfile").read_text()):
        if word == "FROM":
            stage = rest.split()[-1]
        if "cuda" in stage:
            continue
        print(f"-- {stage}: {word} {rest}", flush=True)
        match word:
            case "FROM" | "USER":
                pass  # the interpreter and the account are this machine's
            case "ARG":
                name, _, value = rest.partition("=")
                env[name] = value
            case "ENV":
                for pair in rest.split():
                    name, _, value = pair.partition("=")
                    env[name] = place(value.replace("$PATH", env["PATH"]))
            case "WORKDIR":
                folder = Path(place(rest))
                folder.mkdir(parents=True, exist_ok=True)
            case "COPY" if rest.startswith("--from="):
                if not Path(place(rest.split()[-1])).exists():
                    sys.exit(f"no earlier stage makes {rest.split()[-1]}")
            case "COPY":
                *sources, target = rest.split()
                for source in sources:
                    run(["cp", "-r", str(HERE / source), target])
            case "RUN" if rest.startswith("useradd "):
                (root / "etc").mkdir()
                for name in ACCOUNTS:
                    (root / "etc" / name).touch()
                run(["bash", "-c", rest.replace("useradd", f"useradd --prefix {root}", 1)])
            case "RUN":
                run(["bash", "-euo", "pipefail", "-c", place(rest)])
            case "ENTRYPOINT" | "CMD":
                start[word] = json.loads(rest)
            case _:
                sys.exit(f"{word}: no step that is known here")

    program = shutil.which(start["ENTRYPOINT"][0], path=env["PATH"])
    if program is None or not Path(program).is_relative_to(root):
        sys.exit(f"{start['ENTRYPOINT'][0]} is not a program of the image")
    run([program, *start["CMD"]])
    shutil.copy(HERE / "fixtures/demo/checkpoint.pt", folder)
    run([program, "checkpoint.pt", "--to", "portable"])


main(Path(sys.argv[1]).resolve())
