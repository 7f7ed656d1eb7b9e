"""`convert doctor`: why an artifact does not load here, and what to do.

Probes build a `host.Host`, `source.read_source` describes an artifact, and rules are pure functions
of the two, so that they are tested with hosts that do not exist. No framework is imported in this
process, and nothing that an artifact names is run.
"""
