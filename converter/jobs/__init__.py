"""One artifact of many: the job, and the record of what came of it."""
