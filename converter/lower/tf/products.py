"""Products of matrices, and Einstein's sum."""
