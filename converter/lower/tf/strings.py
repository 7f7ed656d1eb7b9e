"""Text: splitting, joining, matching, numbers."""
