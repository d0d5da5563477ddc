"""Prometheus metrics: what an operator needs to know, and nothing that was computed from a set's elements."""
