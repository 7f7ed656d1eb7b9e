"""Proof that an output is its source."""
