"""Ranges, and how often numbers are found in tensors."""
