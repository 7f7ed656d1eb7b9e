"""Sparse tensors, as far as dense ones can stand for them."""
