"""A real client's update on disk, and what can be recovered from it."""
