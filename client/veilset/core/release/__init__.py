"""A release on the wire: header, signature, keys in Redis, spec text."""
