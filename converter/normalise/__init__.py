"""Normalisation of what sources add to a model: prefixes of names, groups of tensors."""
