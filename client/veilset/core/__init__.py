"""The pure core: no I/O, no clock, no environment, no logging, and no randomness but what is passed in."""
