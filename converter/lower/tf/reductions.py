"""Sums, means, extremes and running ones, over axes."""
