"""File system operations: atomic output, locked folders."""
