"""The target ``triton``: an entry of a Triton model repository."""
