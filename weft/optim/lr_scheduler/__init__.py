"""weft.optim.lr_scheduler: schedules of the learning rate with torch's names and values.

A schedule writes to ``optimizer.param_groups``; the learning rate is an input of a compiled step,
so that none compiles it again. Call ``scheduler.step()`` outside of the compiled step.
"""

from weft.support.lazy_package import load_names_lazily

NAMES = {  # module -> the public names it defines
    "weft.optim.lr_scheduler.composed": "ChainedScheduler SequentialLR",
    "weft.optim.lr_scheduler.cycles": "CosineAnnealingWarmRestarts CyclicLR OneCycleLR",
    "weft.optim.lr_scheduler.formulas": (
        "ConstantLR CosineAnnealingLR ExponentialLR LinearLR MultiStepLR PolynomialLR StepLR"),
    "weft.optim.lr_scheduler.functions": "LambdaLR MultiplicativeLR",
    "weft.optim.lr_scheduler.plateau": "ReduceLROnPlateau",
    "weft.optim.lr_scheduler.schedule": "LRScheduler",
}
load_names_lazily(__name__, NAMES)
