"""Normalise what sources add to a model: prefixes of names, training state, old weight layouts."""
