"""Elements from files, tables and columns."""
