"""The commands of the server package: serve, keys, token."""
