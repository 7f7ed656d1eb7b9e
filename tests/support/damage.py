"""Random damage to bytes, the same for the same generator."""

import random


def damage(data: bytes, rng: random.Random) -> bytearray:
    """Return ``data`` with one to three bytes replaced; three in ten are cut short."""
    hurt = bytearray(data)
    for _ in range(rng.randrange(1, 4)):
        hurt[rng.randrange(len(hurt))] = rng.randrange(256)
    if rng.random() < 0.3:
        del hurt[rng.randrange(len(hurt)) :]
    return hurt
