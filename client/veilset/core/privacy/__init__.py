"""Budgets, count noise, exact arithmetic and the statement of a release."""
