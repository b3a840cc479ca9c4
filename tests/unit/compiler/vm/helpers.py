"""Programs on the virtual machine, also where ``weft.compile`` would not choose it."""

from __future__ import annotations

import numpy as np

from weft.codegen.llvm.jit import JitLibrary
from weft.compiler.options import CompileOptions
from weft.compiler.pipeline import run_pipeline
from weft.compiler.vm.build import build_vm_model
from weft.runtime.executable import open_executable
from weft.runtime.launchers import Code
from weft.runtime.manifest import Manifest


def on_the_machine(mod, opt_level=3):
    """A program on the virtual machine, by way of its file form."""
    options = CompileOptions.make(opt_level=opt_level)
    code = build_vm_model(run_pipeline(mod, options), options)
    manifest = Manifest.from_json(code.manifest.to_json())
    assert manifest == code.manifest
    return open_executable(Code(manifest, lambda: JitLibrary(code.objects, options.target),
                                code.constants))


def flat(value):
    return [a for v in value for a in flat(v)] if isinstance(value, tuple) else [value]


def check(got, expected, rtol=1e-4):
    for one, other in zip(flat(got), flat(expected), strict=True):
        assert one.shape == other.shape
        assert one.dtype == other.dtype
        scale = max(1.0, float(np.abs(other).max(initial=0)))
        np.testing.assert_allclose(one, other, rtol=rtol, atol=rtol * scale)
