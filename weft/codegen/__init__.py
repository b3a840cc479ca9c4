"""Code generation: one back end per kind of target, imported when the kind is first used."""

from weft.codegen.backend import BACKENDS
from weft.codegen.index import KINDS
from weft.support.lazy_package import load_names_lazily

NAMES = {  # module -> the public names it defines
    "weft.codegen.backend": "BACKENDS Backend TextStage backend_of register_backend",
    "weft.codegen.cuda.backend": "CUDA_BACKEND",
    "weft.codegen.llvm.backend": "CPU_BACKEND",
}
load_names_lazily(__name__, NAMES)
BACKENDS.add_index(KINDS)
