"""Ops in quantised integers, as old mobile graphs hold them."""
