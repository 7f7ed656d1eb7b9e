"""Pickles: decoded into plain data and inert records, written, and rewritten in place."""
