"""Attest where an output came from: SLSA provenance, a bill of materials, a manifest."""
