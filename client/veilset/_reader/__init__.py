"""Reading releases: sources, checks, cache, view, follower, remote."""
