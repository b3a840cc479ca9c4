"""weft.amp: mixed precision, with torch's names."""

from weft.amp.autocast import autocast, is_autocast_enabled
from weft.amp.grad_scaler import GradScaler

__all__ = ["GradScaler", "autocast", "is_autocast_enabled"]
