"""Every reader over sound artifacts, damaged: cut at each joint, and changed in a thousand ways.

CONVERTER_ATTACK_ROUNDS=N tries N times as many, and each with every operation.
"""

import time

import pytest
from attacks.arena import DEEP, OPERATIONS, ROUNDS, a_folder
from attacks.bases import fixtures, generated
from attacks.mutate import cuts, damaged

BASES = {base.name: base for base in (*generated(), *fixtures())}
CUTS, DAMAGES = 3, 6  # of each base, in one round
# Both conversions read the same: one artifact meets the one, the next artifact the other.
TURNS = (OPERATIONS,) if DEEP else (("inspect", "safetensors"), ("inspect", "portable"))


@pytest.mark.parametrize("name", BASES)
@pytest.mark.timeout(0)
def test_damaged(arena, name, record_property):
    base = BASES[name]
    share = max(1, len(base.damage) // 2)

    def attacks():
        for file in base.damage:
            data = base.files[file]
            tries = [*cuts(data, int(CUTS * ROUNDS / share) + 1, name)]
            tries += damaged(data, int(DAMAGES * ROUNDS / share) + 1, f"{name}/{file}")
            for what, bad in tries:
                yield a_folder(f"{name} {file} {what}", {**base.files, file: bad}, base.target)

    arena.read(a_folder(f"{name} sound", base.files, base.target))
    start = time.monotonic()
    report = arena.run(attacks(), *TURNS)
    record_property("report", str(report))
    print(f"{name}: {time.monotonic() - start:.1f} s\n{report}")
    report.check()
