"""The outside world behind the ports: gRPC, SQLite, files, Redis, the operating system's entropy."""
