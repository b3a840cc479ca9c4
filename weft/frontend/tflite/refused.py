"""Builtin operators that are not converted, and why."""

from __future__ import annotations

_STRINGS = "weft has no strings"
_TABLES = "tables with keys are not tensors"
_COMPLEX = "programs have no complex dtype"
_STABLEHLO = "an operation of StableHLO that needs more than its operands: read the model as .mlir"

REFUSED: dict[str, str] = {
    **dict.fromkeys(("HASHTABLE", "HASHTABLE_FIND", "HASHTABLE_IMPORT", "HASHTABLE_SIZE",
                     "HASHTABLE_LOOKUP"), _TABLES),
    **dict.fromkeys(("LSH_PROJECTION", "SKIP_GRAM"), _STRINGS),
    **dict.fromkeys(("RFFT2D", "COMPLEX_ABS", "REAL", "IMAG"), _COMPLEX),
    **dict.fromkeys(("BIDIRECTIONAL_SEQUENCE_LSTM", "BIDIRECTIONAL_SEQUENCE_RNN", "LSTM"),
                    "sequences of one direction are read"),
    **dict.fromkeys(("MULTINOMIAL", "RANDOM_STANDARD_NORMAL", "RANDOM_UNIFORM"),
                    "its numbers are those of one runtime"),
    "REDUCE_WINDOW": "no converter of TensorFlow writes it",
    **{f"STABLEHLO_{name}": _STABLEHLO for name in (
        "BROADCAST_IN_DIM", "CBRT", "CLAMP", "COMPARE", "COMPOSITE", "CONCATENATE", "CONVOLUTION",
        "CUSTOM_CALL", "DOT_GENERAL", "DYNAMIC_SLICE", "DYNAMIC_UPDATE_SLICE", "GATHER", "IOTA",
        "PAD", "REDUCE", "REDUCE_WINDOW", "RESHAPE", "RNG_BIT_GENERATOR", "SCATTER", "SHIFT_LEFT",
        "SLICE", "SORT", "TRANSPOSE", "WHILE")},
    "CUSTOM": "by the code of the operator: weft.tflite_converter",
    "DELEGATE": "a part of the model that another library compiled",
    "DENSIFY": "sparse constants are not read",
    "CONCAT_EMBEDDINGS": "no runtime implements it",
    "EMBEDDING_LOOKUP_SPARSE": "sparse indices are not read",
    "CALL": "no runtime implements it",
    "PLACEHOLDER_FOR_GREATER_OP_CODES": "a number that stands for no operator",
}
