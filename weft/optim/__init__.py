"""weft.optim: optimisers and schedules with torch's names, arguments and state dicts."""

from weft.optim import lr_scheduler, swa_utils
from weft.optim.adam import Adam, AdamW
from weft.optim.adam_variants import NAdam, RAdam
from weft.optim.adaptive import Adadelta, Adagrad, Adamax, RMSprop
from weft.optim.optimizer import Optimizer
from weft.optim.sgd import SGD, Lion

__all__ = [
    "SGD",
    "Adadelta",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "Lion",
    "NAdam",
    "Optimizer",
    "RAdam",
    "RMSprop",
    "lr_scheduler",
    "swa_utils",
]
