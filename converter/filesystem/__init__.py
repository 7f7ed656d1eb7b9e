"""Files as the operating system keeps them: atomic output, locked folders."""
