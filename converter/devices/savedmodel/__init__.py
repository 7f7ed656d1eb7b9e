"""SavedModels placed on another device or on none, without TensorFlow."""
