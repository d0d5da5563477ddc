"""A release described: as one flat record, and as a page for people."""
