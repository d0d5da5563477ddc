"""The linear encoding: a release is a uniformly drawn solution of the equations of the kept elements (docs/privacy.md).

Public are the columns c, the planes b (q = 2^b), the band w and each digest's row of w coefficients over GF(2). Elements are
dropped with probability d by fresh coins; V is b vectors of c bits, uniform among all with row(x)·V = 0 for every kept x. A
reader says "member" if and only if row(x)·V = 0 in all planes: FN = d(1 - 1/q), FP = 1/q, ε-private for every hash (δ = 0).
"""
