"""Reports of a batch, for people and for machines. `catalog` has the table."""
