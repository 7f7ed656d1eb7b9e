"""A page about one verification: what was compared, and the errors of outputs and layers."""
