"""Write Keras models of any version as `.keras` files that the current Keras loads."""
