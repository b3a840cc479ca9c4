"""From primitive functions to object code: the cache, worker processes, dumps."""
