"""Elements by number: gathering, one-hot, reversal of sequences."""
