"""Boxes: non-maximum suppression, crops."""
