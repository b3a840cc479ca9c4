"""An external code generator: elementwise regions written as C, for the C compiler of the system.

    python examples/c_codegen.py

Each region becomes one loop over its elements. Without a C compiler it gives no code, and weft
compiles the regions itself. docs/codegen.md explains the parts.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np

import weft
from weft.ir import Call, Constant, Expr, Var
from weft.ir.visitor import post_order
from weft.transform import ObjectCode, Region

EXPRESSIONS = {
    "add": "{} + {}", "subtract": "{} - {}", "multiply": "{} * {}", "negative": "-{}",
    "nn.relu": "{0} > 0.0f ? {0} : 0.0f", "abs": "__builtin_fabsf({})",
}


def supports(call: Call) -> bool:
    """Elementwise calls of float32 whose operands are scalars or have the shape of the result."""
    types = [call.checked_type, *(arg.checked_type for arg in call.args)]
    shapes = {t.shape for t in types if t.shape}
    return (getattr(call.op, "name", None) in EXPRESSIONS and len(shapes) <= 1
            and all(t.dtype.name == "float32" for t in types))


def generate(region: Region) -> ObjectCode | None:
    """The object code of one region; ``None`` without a C compiler, or for several results."""
    compiler = shutil.which("cc")
    if compiler is None or isinstance(region.function.body, weft.ir.Tuple):
        return None
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "region.c"), Path(folder, "region.o")
        source.write_text(c_source(region), encoding="utf-8")
        command = [compiler, "-O3", "-fPIC", "-ffp-contract=off", "-c", source, "-o", target]
        subprocess.run(command, check=True)
        return ObjectCode(region.name, target.read_bytes())


def c_source(region: Region) -> str:
    """A C function with one loop over all elements."""
    function = region.function
    names: dict[Expr, str] = {}
    parameters, lines = [], []
    for number, parameter in enumerate(function.params):
        parameters.append(f"const float *restrict p{number}")
        names[parameter] = f"p{number}[i]" if parameter.checked_type.shape else f"p{number}[0]"
    for node in post_order(function.body):
        if isinstance(node, Constant):
            names[node] = f"{float(node.data)!r}f"
        elif isinstance(node, Call):
            names[node] = f"v{len(lines)}"
            value = EXPRESSIONS[node.op.name].format(*(names[arg] for arg in node.args))
            lines.append(f"    float {names[node]} = {value};")
        elif not isinstance(node, (Var, weft.ir.Op)):
            raise TypeError(f"{type(node).__name__} is not elementwise")
    size = int(np.prod(function.body.checked_type.concrete_shape))
    head = f"void {region.name}({', '.join(parameters)}, float *restrict out)"
    body = "\n".join([*lines, f"    out[i] = {names[function.body]};"])
    return f"{head} {{\n  for (long i = 0; i < {size}; i++) {{\n{body}\n  }}\n}}\n"


def main() -> None:
    """Compile a small program with the generator, and compare with weft's own code."""
    weft.register_external_codegen("c", supports=supports, generate=generate)
    program = weft.parse("""
        def @main(%x: Tensor[(64, 64), float32], %w: Tensor[(64, 64), float32]) {
          nn.relu(add(multiply(nn.dense(%x, %w), 2f), abs(%x)))
        }""")
    module = weft.compile(program, codegens=["c"])
    generator = np.random.default_rng(0)
    x, w = (generator.standard_normal((64, 64), np.float32) for _ in range(2))
    np.testing.assert_allclose(module(x, w), weft.compile(program)(x, w), rtol=1e-5, atol=1e-5)
    print(module.profile(x, w, repeat=3).table())


if __name__ == "__main__":
    main()
