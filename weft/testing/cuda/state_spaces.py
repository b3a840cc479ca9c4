"""Where the state spaces lie in the generic address space of emulated threads.

Shared addresses are 32-bit numbers from ``SHARED_START``: the first KiB is the system's, as on
Hopper. Bits 24 and up hold the rank of a block in its cluster plus one in addresses that ``mapa``
makes, and 0 in addresses of the own block.
"""

SHARED_START = 1024
SHARED_WINDOW = 0x1000_0000_0000
LOCAL_WINDOW = 0x2000_0000_0000
PARAM_WINDOW = 0x3000_0000_0000
WINDOW_BYTES = 1 << 40
