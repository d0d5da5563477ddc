"""A release or a plan described for people: records, charts, pages."""
