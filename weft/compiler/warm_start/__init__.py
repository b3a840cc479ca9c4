"""Models that were compiled before start from the disk cache without the compiler.

``weft.compile(path)`` of an unchanged file reads neither the file nor the front end, as ``git
status`` does not read files that it knows: a record in the cache holds the state of the file
(inode, size, times) and the key of its code. Code and weights are mapped from the cache entry.
"""
