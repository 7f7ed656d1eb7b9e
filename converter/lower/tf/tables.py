"""Lookup tables, as the initialisers of the model fill them."""
