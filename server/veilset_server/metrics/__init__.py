"""Metrics, logs and traces: nothing in them is computed from a set's elements."""
