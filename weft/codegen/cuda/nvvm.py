"""LLVM IR to PTX by libnvvm, the compiler library of the CUDA toolkit, which numba-cuda binds."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence

from weft.codegen.cuda.nvvm_dialect import to_nvvm
from weft.codegen.cuda.toolkit import find_library, libdevice, numba_cuda
from weft.support.errors import InternalError, MissingToolError
from weft.target import CudaTarget


def ptx_by_nvvm(text: str, target: CudaTarget, others: Sequence[str] = ()) -> str:
    """The PTX of a module that ``write_device_module`` wrote, with modules of numba-cuda.

    Raises ``MissingToolError`` if numba-cuda or libnvvm is not installed.
    """
    own = [to_nvvm(text)] if "\ndefine " in text or not others else []
    return compile_nvvm([*own, *others], target)


def compile_nvvm(modules: Sequence[str], target: CudaTarget) -> str:
    """The PTX of modules in the NVVM dialect, linked with each other and with libdevice."""
    if find_library("nvvm") is None:
        raise MissingToolError("libnvvm was not found", help="pip install weft[cuda], or use the "
                               "target without -codegen=nvvm")
    nvvm = numba_cuda("cudadrv.nvvm", "binds libnvvm")
    unit = nvvm.CompilationUnit({"arch": target.arch.replace("sm_", "compute_"), "opt": 3})
    try:
        for text in modules:
            unit.add_module(text.encode())
        library = libdevice()
        if library is not None and any("__nv_" in text for text in modules):
            unit.lazy_add_module(library)
        unit.verify()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", nvvm.NvvmWarning)
            ptx: str = unit.compile().decode()
    except nvvm.nvvmError as error:
        raise InternalError("libnvvm rejects generated code", got=error,
                            notes=unit.get_log().splitlines()[:20]) from None
    return _without_stamp(ptx.rstrip("\0 \n") + "\n")


def _without_stamp(ptx: str) -> str:
    """The PTX without the comments about the build of the compiler."""
    return re.sub(r"\A(//.*\n)*", "", ptx).lstrip("\n")
