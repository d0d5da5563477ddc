"""A third encoding, as small as one can be: what docs/architecture.md says that it takes."""
