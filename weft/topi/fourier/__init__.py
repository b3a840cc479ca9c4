"""Fast Fourier transforms: vector passes for fixed sizes, one program for all symbolic ones."""
