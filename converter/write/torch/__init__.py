"""Files that torch loads, written for a device that is not here, without torch."""
