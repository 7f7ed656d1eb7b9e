"""Byte-level parts that several formats share. They know structure, and no model."""
