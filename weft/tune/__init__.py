"""Searches for faster schedules of kernels, and keeps the winners that compilations take."""

from weft.support.lazy_package import load_names_lazily

NAMES = {  # module -> the public names it defines
    "weft.tune.report": "TunedKernel TuningReport",
    "weft.tune.store": "Sample TuningStore Winner",
    "weft.tune.tuning": "tune",
}
load_names_lazily(__name__, NAMES)
