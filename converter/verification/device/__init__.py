"""Comparison on a device, with proof of placement."""
