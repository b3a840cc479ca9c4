"""weft.optim: optimisers and schedules with torch's names, arguments and state dicts."""

from weft.support.lazy_package import load_names_lazily

NAMES = {  # module -> the public names it defines
    "weft.optim": "lr_scheduler swa_utils",
    "weft.optim.adafactor": "Adafactor",
    "weft.optim.adam": "Adam AdamW",
    "weft.optim.adam_variants": "NAdam RAdam",
    "weft.optim.adaptive": "Adadelta Adagrad Adamax RMSprop",
    "weft.optim.asgd": "ASGD",
    "weft.optim.lbfgs": "LBFGS",
    "weft.optim.muon": "Muon",
    "weft.optim.optimizer": "Optimizer",
    "weft.optim.rprop": "Rprop",
    "weft.optim.sgd": "Lion SGD",
    "weft.optim.sparse_adam": "SparseAdam",
}
load_names_lazily(__name__, NAMES)
