"""How operators run on a target: strategies, implementations, and the choice among them.

The strategies that ship with weft are imported when a kind of target is first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.strategy.index import NAMES
from weft.support.lazy_package import load_names_lazily

if TYPE_CHECKING:
    from weft.strategy import cpu, cuda
    from weft.strategy.implementation import Implementation, ScheduleContext
    from weft.strategy.lower_function import (
        LoweredKernel,
        ScheduledKernel,
        lower_function,
        schedule_function,
    )
    from weft.strategy.registry import (
        alter_layout,
        layout_hooks,
        legalizations,
        legalize,
        strategy,
    )
    from weft.strategy.selection import implementations, select
else:
    load_names_lazily(__name__, NAMES[__name__])

__all__ = [
    "Implementation",
    "LoweredKernel",
    "ScheduleContext",
    "ScheduledKernel",
    "alter_layout",
    "cpu",
    "cuda",
    "implementations",
    "layout_hooks",
    "legalizations",
    "legalize",
    "lower_function",
    "schedule_function",
    "select",
    "strategy",
]
