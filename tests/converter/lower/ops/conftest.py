"""Inputs that are the same in every order of the tests."""

import numpy as np
import pytest


@pytest.fixture(autouse=True)
def seed_inputs(request):
    """Start a module's generator `RNG`, where it has one, from the same state for each test."""
    generator = getattr(request.module, "RNG", None)
    if generator is not None:
        generator.bit_generator.state = np.random.default_rng(0).bit_generator.state
