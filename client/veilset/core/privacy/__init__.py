"""Budgets, noisy counts, limits of any test, exact arithmetic and the statement of a release."""
