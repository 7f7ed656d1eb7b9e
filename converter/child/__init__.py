"""Child processes, and the trusted code that runs in them and nowhere else."""
