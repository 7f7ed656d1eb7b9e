"""Diagonals of matrices: taking, setting, making."""
