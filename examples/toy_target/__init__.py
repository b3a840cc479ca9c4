"""A back end in one folder: its own target, memory, launcher, cost model and artifact section.

    python -m examples.toy_target

Kernels are the text of loop programs, which weft's evaluator runs in the memory of a device that
this folder simulates. weft finds the back end when this package is imported; an installed package
names it in the entry-point group ``weft.plugins``, as ``pyproject.toml`` here does.
docs/tutorials/add_target.md explains the parts.
"""

from weft.codegen import register_backend
from weft.runtime.launchers import register_launcher
from weft.runtime.library import register_loader
from weft.target import register_target_kind

from .backend import ToyBackend
from .target import ToyTarget

register_target_kind(ToyTarget)
register_backend(ToyBackend())
# By name: the parts that run programs are imported with the first program.
register_loader("toy", f"{__name__}.library:ToyLibrary")
register_launcher("toy", f"{__name__}.launcher:ToyLauncher")

__all__ = ["ToyBackend", "ToyTarget"]
