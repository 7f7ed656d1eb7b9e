"""Settings that all tests share."""

from hypothesis import settings

# A busy machine is no bug: how long a reader may take is what tests/attacks measures.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")
