"""Convolutions, of every rank, and their transposes."""
