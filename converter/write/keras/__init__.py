"""Keras models of any age as `.keras` files that today's Keras loads, without Keras."""
