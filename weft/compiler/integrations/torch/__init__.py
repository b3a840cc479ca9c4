"""weft as a backend of ``torch.compile``."""

from weft.compiler.integrations.torch.fallback import FallbackWarning, left_to_torch

__all__ = ["FallbackWarning", "left_to_torch"]
