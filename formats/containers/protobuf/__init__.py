"""Protocol buffers: messages by schema tables, read lazily, written, and rewritten in place."""
