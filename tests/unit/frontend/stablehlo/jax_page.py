"""Writes docs/jax.md from the table of converters.

``python -m tests.unit.frontend.stablehlo.jax_page > docs/jax.md`` brings the page up to date.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from weft.frontend.stablehlo import converters  # noqa: F401 - fills the table
from weft.frontend.stablehlo.refused import REFUSED
from weft.frontend.stablehlo.registry import CONVERTERS

# The operations of version 1.13 of the specification, and those without a section of their own.
_SPECIFIED = """abs add after_all all_gather all_reduce all_to_all and async_done async_start atan2
batch_norm_grad batch_norm_inference batch_norm_training bitcast_convert broadcast_in_dim case cbrt
ceil cholesky clamp collective_broadcast collective_permute compare complex composite concatenate
constant convert convolution cosine count_leading_zeros custom_call divide dot_general
dynamic_broadcast_in_dim dynamic_conv dynamic_gather dynamic_iota dynamic_pad dynamic_reshape
dynamic_slice dynamic_update_slice exponential exponential_minus_one fft floor gather
get_dimension_size get_tuple_element if imag infeed iota is_finite log log_plus_one logistic map
maximum minimum multiply negate not optimization_barrier or outfeed pad partition_id popcnt power
real recv reduce reduce_precision reduce_scatter reduce_window remainder replica_id reshape reverse
rng rng_bit_generator round_nearest_afz round_nearest_even rsqrt scatter select select_and_scatter
send set_dimension_size shift_left shift_right_arithmetic shift_right_logical sign sine slice sort
sqrt subtract tan tanh transpose triangular_solve tuple uniform_dequantize uniform_quantize while
xor"""
SPECIFIED = _SPECIFIED.split()
OUTSIDE = ("broadcast", "create_token", "dot", "einsum", "real_dynamic_slice", "torch_index_select")

_INTRO = """\
# JAX and StableHLO

The tables of this page are written from the converters, and a test compares the two.

```python
import jax, weft

def predict(params, x):
    return jax.nn.softmax(x @ params["w"] + params["b"])

module = weft.compile(predict, example_inputs=(params, x))
probabilities = module(*jax.tree.leaves((params, x)))    # inputs "params['b']", "params['w']", "x"
step = weft.compile(jax.value_and_grad(loss), example_inputs=(params, x))
```

`weft.compile` takes

- a function of JAX, jitted or not, or a callable model (of flax or equinox, its arrays become
  constants), with `example_inputs`: its arguments by position or by name, arrays or
  `jax.ShapeDtypeStruct`. Trees of arrays become one input for each leaf, in the order of
  `jax.tree.leaves`. Arguments that are no arrays belong into a closure or `functools.partial`;
- what `jax.jit(f).lower(...)` and `jax.export.export(...)` return;
- a file of StableHLO: text (`.mlir`, `.stablehlo`, in the form that JAX prints or in MLIR's
  generic form), read by weft's own parser without JAX, or bytecode (`.mlirbc`), which jaxlib
  reads.

JAX is the extra `weft[jax]`. float64 and int64 are read as JAX traced them
(`jax_enable_x64`); tensors of bool, bfloat16, float16, 8-bit floats and all integers are read.

## Sizes

Symbolic sizes of `jax.export.symbolic_shape` are symbols of the program, which runs at all of
them; arithmetic on sizes is evaluated at import. `inputs` makes sizes of a function symbolic:

```python
weft.compile(predict, example_inputs=(params, x), inputs={"x": ("batch", 784)})
```

In a file without names, `?` gets the name of its input and axis (`x_dim0`), or what `inputs` says.

## What is converted to what

Functions are inlined, and branches become `if`. A loop that counts to a constant is unrolled when
its rounds have up to 400 operations together; other loops become functions that call themselves.
Regions of reductions, scatters and sorts are recognised by their form: sums, products, extremes,
argmax and argmin, orders by several keys. Another region of a reduction or window is applied to
whole halves of an axis, and another comparator decides a sorting network. Random numbers of
`jax.random` are the same bits, since the keys' generator (threefry2x32) is part of the program.

## What is not read

Complex numbers (and so `fft`), collectives and other programs over several devices, quantised
types, tuples and tokens, tensors with bounds on sizes, call backs into Python, and custom calls
other than those below. A module that uses something else is refused with the list of all of it
and its places in the user's file; `@weft.stablehlo_converter("stablehlo.fft")`, or `"@target"` for
a custom call, adds a converter:

```python
@weft.stablehlo_converter("@acme_scale")
def scale(node, x, *, factor=1.0):
    return op.multiply(x, node.constant(factor, "float32"))
```

The order of floating-point sums is weft's own, so results differ from XLA's in the last bits.
`python -m benchmarks.jax_models` times ten functions beside `jax.jit`.

"""


def render() -> str:
    return "".join(_parts())


def _parts() -> Iterator[str]:
    names = CONVERTERS.names()
    known = {name.removeprefix("stablehlo.") for name in names if name.startswith("stablehlo.")}
    whole = [*SPECIFIED, *OUTSIDE]
    converted = [name for name in whole if name in known or name == "custom_call"]
    yield _INTRO
    old = sum(name in OUTSIDE for name in converted)
    yield (f"## Operations of StableHLO\n\n{len(converted) - old} of the {len(SPECIFIED)} "
           f"operations of the specification are converted, and {old} of {len(OUTSIDE)} older "
           "ones.\n\n| operation | converted, or why not |\n|---|---|\n")
    for name in sorted(whole):
        said = "yes" if name in known else \
            "the calls below" if name == "custom_call" else REFUSED[name]
        yield f"| {name} | {said} |\n"
    yield "\n## Operations of CHLO\n\n" + _listed("chlo.", names)
    yield "\n## Custom calls\n\n" + _listed("@", names)


def _listed(prefix: str, names: tuple[str, ...]) -> str:
    found = [name.removeprefix(prefix) for name in names if name.startswith(prefix)]
    return ", ".join(f"`{name}`" for name in found) + ".\n"


if __name__ == "__main__":
    sys.stdout.write(render())
