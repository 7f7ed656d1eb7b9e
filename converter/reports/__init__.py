"""What a batch did, for people and for machines. `catalog` has the table."""
