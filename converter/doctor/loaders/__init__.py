"""Predict how official loaders end on an artifact, and confirm it by calling them."""
