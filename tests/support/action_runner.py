"""Run the steps of the GitHub action as GitHub's runner does."""

import os
import re
import subprocess
import sys

from repository import ROOT

ACTION = ROOT / ".github/actions/convert/action.yml"


class Runner:
    """Runs the action's steps as GitHub's runner does, in an environment like its own."""

    def __init__(self, action, folder, checkout):
        self.action, self.temp = action, folder / "_temp"
        self.temp.mkdir()
        self.workspace = folder / "workspace"
        self.workspace.mkdir()
        self.output, self.summary = self.temp / "output", self.temp / "summary"
        self.checkout = checkout

    def install_here(self):
        """Stand in for the first step: this interpreter, with convert as it is installed here."""
        programs = self.temp / "convert/bin"
        programs.mkdir(parents=True)
        for name, command in (("python", ""), ("convert", " -m converter")):
            (programs / name).write_text(f'#!/bin/sh\nexec {sys.executable}{command} "$@"\n')
            (programs / name).chmod(0o755)

    def run(self, index, **given):
        step = self.action["runs"]["steps"][index]
        inputs = {n: d.get("default", "") for n, d in self.action["inputs"].items()}
        assert set(given) <= set(inputs)
        inputs |= given
        self.output.write_text("")
        env = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.temp),
            "CI": "true",
            "GITHUB_ACTIONS": "true",
            "GITHUB_ACTION_PATH": str(self.checkout / ".github/actions/convert"),
            "GITHUB_OUTPUT": str(self.output),
            "GITHUB_STEP_SUMMARY": str(self.summary),
            "GITHUB_WORKSPACE": str(self.workspace),
            "PYTHONPATH": str(ROOT) if self.checkout is ROOT else "",
            "RUNNER_TEMP": str(self.temp),
        }
        for name in [n for n in os.environ if n.startswith(("PIP_", "SSL_", "REQUESTS_"))]:
            env[name] = os.environ[name]
        for name, value in step["env"].items():
            (wanted,) = re.fullmatch(r"\$\{\{ inputs\.([\w-]+) \}\}", value).groups()
            env[name] = inputs[wanted]
        script = self.temp / "step.sh"
        script.write_text(step["run"])
        return subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", script],
            cwd=self.workspace,
            env=env,
            capture_output=True,
            text=True,
            timeout=300,
        )

    @property
    def outputs(self):
        """What a step gave to later ones, as GitHub reads it."""
        found, lines = {}, iter(self.output.read_text().splitlines())
        for line in lines:
            if "<<" in line:
                name, mark = line.split("<<")
                values = []
                while (value := next(lines)) != mark:
                    values.append(value)
                found[name] = "\n".join(values)
            else:
                name, _, found[name] = line.partition("=")
        return found
