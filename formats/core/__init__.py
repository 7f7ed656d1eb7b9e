"""What every reader fills: bundle, lazy weights, storage, digests; and plain output files."""
