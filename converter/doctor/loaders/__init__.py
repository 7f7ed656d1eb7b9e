"""What official loaders make of an artifact: predicted, and confirmed by asking them."""
