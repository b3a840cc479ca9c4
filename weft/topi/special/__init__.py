"""Special functions: error functions, gamma functions, Bessel functions, orthogonal polynomials."""
