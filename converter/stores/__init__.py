"""Object stores and remote file systems, behind one small interface."""
