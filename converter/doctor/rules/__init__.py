"""Rules about a host: pure functions of what the probes found."""
