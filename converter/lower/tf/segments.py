"""Sums and other reductions of segments."""
