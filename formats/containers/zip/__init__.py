"""Zip archives: read, written, and rewritten in place."""
