"""Object stores and remote file systems, behind a few methods of ours."""
