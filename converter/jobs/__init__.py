"""One artifact of a batch: its job, and the record of its conversion."""
