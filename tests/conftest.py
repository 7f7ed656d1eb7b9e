"""Settings that all tests share."""

import os

from hypothesis import settings

# A busy machine is no bug: how long a reader may take is what tests/attacks measures. CI repeats
# the same examples, so that it fails only for what changed.
settings.register_profile("patient", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("patient")
