"""The linear encoding: parameters, rows, drawing, law."""
