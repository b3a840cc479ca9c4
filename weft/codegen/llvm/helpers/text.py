"""How helper functions are written."""

from __future__ import annotations

from collections.abc import Callable

# ``no-builtins``: LLVM would recognise the loop of memset and make it call itself.
_ATTRIBUTES = 'nounwind "no-builtins"'
# The text of a function, given the type of sizes.
HelperText = Callable[[str], str]


def function(result: str, name: str, parameters: str, body: str) -> str:
    """A function that only the artifact sees."""
    # The functions of Arm's ABI get floats in general registers everywhere.
    convention = "arm_aapcscc " if name.startswith("__aeabi") else ""
    return (f"define hidden {convention}{result} @{name}({parameters}) {_ATTRIBUTES} "
            f"{{\n{body}\n}}\n")
