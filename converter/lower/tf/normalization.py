"""Batch, local and other normalisations; softmax; biases."""
