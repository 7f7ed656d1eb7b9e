"""Scripts that run a model in its own framework; plain, for another Python may run them."""
