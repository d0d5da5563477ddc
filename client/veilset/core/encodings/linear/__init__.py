"""The linear encoding: parameters and planner, rows, encoding, law of readings."""
