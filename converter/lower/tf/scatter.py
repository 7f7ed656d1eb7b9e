"""Elements put at places: scattering, stitching, partitions."""
