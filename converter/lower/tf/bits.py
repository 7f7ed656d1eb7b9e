"""Bits: and, or, shifts, other ways to read the same bytes."""
