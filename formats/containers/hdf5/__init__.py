"""HDF5 files: our own reader for untrusted files, and a writer."""
