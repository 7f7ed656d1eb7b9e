"""Diagonals, triangles, inverses and decompositions."""
