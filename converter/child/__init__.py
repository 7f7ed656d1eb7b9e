"""Child processes, and the trusted code that runs only in them."""
