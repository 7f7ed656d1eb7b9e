"""Verify that an output is equivalent to its source."""
