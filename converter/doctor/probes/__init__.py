"""Probes: collect what this host is, as plain data."""
