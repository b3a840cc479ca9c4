"""Building kernels, from primitive functions to object code: cache, worker processes, dumps."""
