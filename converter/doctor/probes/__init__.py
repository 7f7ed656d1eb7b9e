"""Probes: what this host is, as plain data."""
