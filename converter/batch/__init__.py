"""Whole registries: plan, run, remember. `driver.run` is the whole of it."""
