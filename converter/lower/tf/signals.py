"""Fourier transforms, spectrograms, complex numbers."""
