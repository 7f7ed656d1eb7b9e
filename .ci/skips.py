"""Print which tests no stage of .ci/run has run, and why; fail where a reason is no good one.

    python .ci/skips.py FOLDER        # of the JUnit files that the stages wrote

A test that one stage skips and another one runs is no skip.
"""

import re
import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter, defaultdict
from pathlib import Path

# What a machine of CI does not have, and what does not apply: all other reasons fail the run.
GOOD = (
    r"GPU|NVIDIA|CUDA|onnxruntime-gpu|onnxruntime is built for",  # no device
    r"driver of its own|compute capability",  # another device
    r"^root reads everything|needs root|mounting|cannot be mounted|this file system has them",
    r"set CONVERTER_ATTACK_ROUNDS|set CONVERTER_EVERY_TASK",  # stages of every night run them
    r"names no Python with MLflow 2",
    r"AzureExecutionProvider|from 1\.24 on",  # builds of onnxruntime
    r"^TensorFlow of today has no |^stored for (keras|torch) ",
    r"^torch does not write that|^a trace of nn\.|whose class is the author's own",
    r"no package index can be reached",
    r"^the corpus is not here",  # stage corpus fails without it
)


def read(folder: Path) -> tuple[set[str], dict[str, str]]:
    """Return the tests that ran in a stage, and the skipped ones with their reasons."""
    ran, skipped = set(), {}
    for path in sorted(folder.glob("*.xml")):
        for case in ElementTree.parse(path).iter("testcase"):
            name = "::".join(filter(None, (case.get("classname"), case.get("name"))))
            skip = case.find("skipped")
            if skip is None or skip.get("type") == "pytest.xfail":
                ran.add(name)
            elif (why := skip.get("message")) != "collection skipped":
                skipped[name] = " ".join(why.split())
            else:  # of a whole module: the text is of a tuple of file, line and reason
                skipped[name] = re.sub(r"^.*Skipped: |.\)$", "", skip.text.strip(), flags=re.DOTALL)
    return ran, skipped


def main(folder: Path) -> int:
    ran, skipped = read(folder)
    modules = {name.partition("::")[0] for name in ran}
    left = {name: why for name, why in skipped.items() if name not in ran | modules}
    reasons: dict[str, Counter[str]] = defaultdict(Counter)
    for name, why in left.items():
        reasons[why][name.partition("::")[0]] += 1
    bad = [why for why in reasons if not any(re.search(good, why) for good in GOOD)]
    for why, places in sorted(reasons.items(), key=lambda item: -item[1].total()):
        where = ", ".join(f"{place} ({n})" for place, n in places.most_common(3))
        more = f" and {len(places) - 3} more files" if len(places) > 3 else ""
        print(f"{'MISSING ' if why in bad else ''}{places.total()} tests: {why}: {where}{more}")
    print(f"{len(ran)} tests ran, {len(left)} ran in no stage")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
