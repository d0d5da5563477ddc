"""Estimates from releases: sizes, overlaps and comparisons, with intervals."""
