"""Normalise what sources add to a model: prefixes of names, groups of training state."""
