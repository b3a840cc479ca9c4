"""weft.linalg: linear algebra of tensors, with torch's names and signatures.

Matrices are the last two axes, and leading axes are batches. Factors are computed in float64 and
converted to the dtype of the operands.
"""

from weft.support.lazy_package import load_names_lazily

NAMES = {  # module -> the public names it defines
    "weft.eager.functions.linalg.factors": (
        "cholesky cholesky_ex householder_product lu lu_factor lu_factor_ex matrix_exp qr"
    ),
    "weft.eager.functions.linalg.matrices": "LinAlgError",
    "weft.eager.functions.linalg.norms": "cond matrix_norm norm vector_norm",
    "weft.eager.functions.linalg.products": (
        "cross diagonal matrix_power multi_dot vander vecdot"
    ),
    "weft.eager.functions.linalg.solving": (
        "det inv inv_ex lu_solve slogdet solve solve_ex solve_triangular tensorinv tensorsolve"
    ),
    "weft.eager.functions.linalg.spectral": (
        "eigh eigvalsh lstsq matrix_rank pinv svd svdvals"
    ),
    "weft.eager.functions.linear": "matmul",
}
load_names_lazily(__name__, NAMES)
