"""How operators run on a target: strategies, implementations, and the choice among them.

The strategies that ship with weft are imported when a kind of target is first asked for.
"""

from weft.support.lazy_package import load_names_lazily

NAMES = {  # module -> the public names it defines
    "weft.strategy": "cpu cuda",
    "weft.strategy.implementation": "Implementation ScheduleContext",
    "weft.strategy.lower_function": (
        "LoweredKernel ScheduledKernel lower_function schedule_function"
    ),
    "weft.strategy.registry": "alter_layout layout_hooks legalizations legalize strategy",
    "weft.strategy.selection": "implementations select",
}
load_names_lazily(__name__, NAMES)
