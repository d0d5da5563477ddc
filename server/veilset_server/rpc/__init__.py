"""The gRPC edge: calls decoded, handed to use cases, encoded."""
