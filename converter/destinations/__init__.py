"""Where outputs of a batch go: a folder, an object store, MLflow. `catalog` has the table."""
