"""Compiled twins of the core's inner loops, by numba. Import them through `veilset.core.compiled` only.

Each gives bit for bit what its plain twin gives (tests/unit/test_kernels_*.py), so which one runs is a question of time
alone. They are pure like the rest of the core: arrays in, arrays out; they let go of the interpreter's lock.
"""
