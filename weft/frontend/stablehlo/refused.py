"""Operations that are not converted, and why."""

from __future__ import annotations

from weft.frontend.stablehlo.syntax import Operation

_COLLECTIVE = "collectives belong to programs over several devices"
_TRANSFER = "programs read their inputs and write their outputs only"
_COMPLEX = "programs have no complex dtype"
_LINALG = "a factorisation that weft lacks"

# Operations of the specification, by name.
REFUSED: dict[str, str] = {
    **dict.fromkeys(("all_gather", "all_reduce", "all_to_all", "collective_broadcast",
                     "collective_permute", "partition_id", "reduce_scatter", "replica_id"),
                    _COLLECTIVE),
    **dict.fromkeys(("infeed", "outfeed", "recv", "send"), _TRANSFER),
    **dict.fromkeys(("after_all", "create_token"), "programs have no side effects to order"),
    **dict.fromkeys(("complex", "imag", "real", "fft"), _COMPLEX),
    "async_start": "asynchronous operations belong to one runtime",
    "async_done": "asynchronous operations belong to one runtime",
    "get_tuple_element": "a function returns several results instead of a tuple",
    "tuple": "a function returns several results instead of a tuple",
    "rng": "its numbers are not specified; draw them with a key (jax.random)",
    "rng_bit_generator": "its numbers are those of one backend; keys of threefry2x32 are read",
    "set_dimension_size": "tensors with a bound on their size",
    "uniform_quantize": "quantised types are not read",
    "uniform_dequantize": "quantised types are not read",
}
_CALLS = {"lapack_": _LINALG, "xla_python": "a call back into Python",
          "xla_ffi_python": "a call back into Python", "cu": "a library of one kind of GPU",
          "Eigh": _LINALG, "Qr": _LINALG, "ducc_fft": _COMPLEX}


def reason_for(operation: Operation) -> str:
    """Why an operation is not converted; empty where nothing more is known."""
    if operation.name == "stablehlo.custom_call":
        return next((why for start, why in _CALLS.items()
                     if operation.target.startswith(start)), "")
    if operation.name == "chlo.ragged_dot":
        return "products of groups of rows whose lengths are data"
    return REFUSED.get(operation.name.removeprefix("stablehlo."), "")
