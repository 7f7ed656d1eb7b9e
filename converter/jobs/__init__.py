"""One artifact of many: the job, the worker that does it, and the record of what came of it."""
