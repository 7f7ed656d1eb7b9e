"""Where artifacts come from: folders, lists, object stores, MLflow. `catalog` has the table."""
