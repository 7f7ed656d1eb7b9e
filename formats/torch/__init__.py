"""Files that torch writes, read and written without torch."""
