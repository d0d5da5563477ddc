"""The command line: results on standard output, progress and errors on standard error."""
