"""Devices: their names, and programs moved between them."""
