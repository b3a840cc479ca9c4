"""LLVM IR to PTX by libnvvm, the compiler library of the CUDA toolkit, through ctypes."""

from __future__ import annotations

import ctypes
import functools
import re
from typing import Any

from weft.codegen.cuda.nvvm_dialect import to_nvvm
from weft.codegen.cuda.toolkit import find_file
from weft.support.errors import InternalError, MissingToolError
from weft.target import CudaTarget


def ptx_by_nvvm(text: str, target: CudaTarget) -> str:
    """The PTX of a module that ``write_device_module`` wrote.

    Raises ``MissingToolError`` if libnvvm is not installed.
    """
    program = _Program(_library())
    try:
        program.add(to_nvvm(text))
        arch = target.arch.replace("sm_", "compute_")
        return program.compile([f"-arch={arch}", "-opt=3"])
    finally:
        program.destroy()


@functools.cache
def _library() -> Any:
    path = find_file("lib/libnvvm.so*") or find_file("nvvm/lib64/libnvvm.so*")
    if path is None:
        raise MissingToolError("libnvvm was not found", help="pip install weft[cuda], or set "
                               "CUDA_HOME, or use the target without -codegen=nvvm")
    return ctypes.CDLL(str(path))


class _Program:
    """A compilation unit (``nvvmProgram``)."""

    def __init__(self, library: Any) -> None:
        self.library = library
        self.handle = ctypes.c_void_p()
        self._check(library.nvvmCreateProgram(ctypes.byref(self.handle)), "nvvmCreateProgram")

    def add(self, text: str) -> None:
        data = text.encode()
        self._check(self.library.nvvmAddModuleToProgram(
            self.handle, data, ctypes.c_size_t(len(data)), b"kernel"), "nvvmAddModuleToProgram")

    def compile(self, options: list[str]) -> str:
        """The PTX."""
        array = (ctypes.c_char_p * len(options))(*(o.encode() for o in options))
        verified = self.library.nvvmVerifyProgram(self.handle, len(options), array)
        self._check(verified, "nvvmVerifyProgram")
        compiled = self.library.nvvmCompileProgram(self.handle, len(options), array)
        self._check(compiled, "nvvmCompileProgram")
        return _without_stamp(self._text("nvvmGetCompiledResult"))

    def destroy(self) -> None:
        self.library.nvvmDestroyProgram(ctypes.byref(self.handle))

    def _text(self, getter: str) -> str:
        size = ctypes.c_size_t()
        getattr(self.library, f"{getter}Size")(self.handle, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        getattr(self.library, getter)(self.handle, buffer)
        return buffer.value.decode()

    def _check(self, status: int, function: str) -> None:
        if status == 0:
            return
        name = self.library.nvvmGetErrorString
        name.restype = ctypes.c_char_p
        raise InternalError("libnvvm rejects generated code", where=function,
                            got=name(status).decode(), notes=self._log().splitlines()[:20])

    def _log(self) -> str:
        return self._text("nvvmGetProgramLog") if self.handle else ""


def _without_stamp(ptx: str) -> str:
    """The PTX without the comments about the build of the compiler."""
    return re.sub(r"\A(//.*\n)*", "", ptx).lstrip("\n")
