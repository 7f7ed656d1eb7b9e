"""`convert doctor`: why an artifact does not load here, and what to do.

Probes look at the host and build a `host.Host`; `source.look` describes an artifact; rules are pure
functions of the two, so that they are tested with hosts that nobody has. Nothing that belongs to a
framework is imported in this process, and nothing that an artifact names is run anywhere.
"""
