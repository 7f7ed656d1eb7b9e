"""Group the files of a folder into artifacts, by names and a few headers."""
