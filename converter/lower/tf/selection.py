"""Choice by value: the largest, the different, those that hold."""
