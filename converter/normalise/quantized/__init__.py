"""Quantised checkpoints of Hugging Face's libraries, and their weights as floats."""
