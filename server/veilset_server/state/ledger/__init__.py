"""The ledger in SQLite: budgets, sets, uploads, releases."""
