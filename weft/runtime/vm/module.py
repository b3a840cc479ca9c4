"""Compiled modules that run on the virtual machine."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.runtime import threads
from weft.runtime.arena import AlignedBlock, Pool
from weft.runtime.buffers import BoundCall, copy_all, copy_into
from weft.runtime.dtypes import numpy_dtype
from weft.runtime.library import Library
from weft.runtime.manifest import KernelCall, Manifest, TensorSpec
from weft.runtime.module import CompiledModule
from weft.runtime.ndarray import to_numpy
from weft.runtime.peak import measure_fma_peak
from weft.runtime.profile import Profile, StepTime, report_kernels
from weft.runtime.run_control import RunControl
from weft.runtime.vm.kernels import KernelTable, Scratch, Specialize
from weft.runtime.vm.machine import Image, Machine, Reading
from weft.runtime.vm.program import VmProgram
from weft.runtime.vm.value import Value
from weft.support.errors import InternalError, InvalidInputError, OptionError


class VmModule(CompiledModule):
    """A program with control flow, closures or data types, or with sizes that vary.

    It is called as any compiled module. A result that is neither a tensor nor a tuple of tensors
    (a list, say) is given as ``weft.runtime.vm.value.Data``; such a module has no ``outputs``.
    ``specialize`` compiles kernels for sizes met for the first time; without it they are refused.
    """

    def __init__(self, manifest: Manifest, library: Library,
                 constants: bytes | memoryview | np.ndarray | AlignedBlock,
                 specialize: Specialize | None = None) -> None:
        self._specialize = specialize
        super().__init__(manifest, library, constants)

    def _bind_code(self) -> None:
        kernels = KernelTable(self.program.kernels, self.library, self._specialize)
        self._image = Image(self.program, kernels, self._constant_arrays())
        self._scratches: Pool[Scratch] = Pool(Scratch)
        if self.program.returns_value:
            self._returns_tuple = False

    @property
    def program(self) -> VmProgram:
        """The bytecode."""
        if self.manifest.vm is None:
            raise InternalError("missing bytecode in a module for the virtual machine")
        return self.manifest.vm

    def profile(self, /, *args: Any, repeat: int = 20, **kwargs: Any) -> Profile:
        """Time the kernels of the fastest of ``repeat`` runs, in the order in which they ran."""
        if not isinstance(repeat, int) or isinstance(repeat, bool) or repeat < 1:
            raise OptionError("invalid value of repeat", expected="a positive integer",
                              got=repr(repeat))
        arrays = self._arrays(self._signature.bind(args, kwargs))
        count = threads.num_threads(self.manifest.threads)
        self._apply_threads()
        self._interpret(arrays, None)  # memory is touched, sizes met for the first time compiled
        best, readings = min((self._timed(arrays) for _ in range(repeat)), key=lambda run: run[0])
        start = readings[0][1] if readings else 0.0
        steps = tuple(_step_time(reading, start) for reading in readings)
        return Profile(steps, best, measure_fma_peak(self.library, count), count)

    def __repr__(self) -> str:
        return (f"<{type(self).__name__} {self.manifest.signature()}, "
                f"{len(self.program.functions)} functions on the virtual machine, "
                f"for {self.manifest.target.cpu}>")

    def bind(self, /, *args: Any, out: Any = None, **kwargs: Any) -> BoundCall:
        """See ``CompiledModule.bind``; outputs with dynamic shapes cannot be bound."""
        open_ = [spec for spec in self.outputs if not all(isinstance(n, int) for n in spec.shape)]
        if open_ or self.program.returns_value:
            raise InvalidInputError(
                "a module whose outputs have no fixed sizes cannot be bound",
                got=self.manifest.signature(), help="call it, or fix the sizes and compile again")
        return super().bind(*args, out=out, **kwargs)

    def _bound(self, arrays: list[np.ndarray], outputs: list[np.ndarray]) -> Callable[[], object]:
        return functools.partial(self._execute, arrays, outputs)

    def _call_into(self, out: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """The machine allocates results, since shapes may depend on data; they are copied."""
        if self._signature.takes("out"):
            return super()._call_into(out, args, kwargs)
        arrays = self._arrays(self._signature.bind(args, kwargs))
        returned = copy_into(self.manifest, out, arrays, self._execute(arrays))
        return returned if self._returns_tuple else returned[0]

    def _execute(self, values: Sequence[Any], outputs: Sequence[np.ndarray] | None = None
                 ) -> list[np.ndarray]:
        arrays = self._arrays(values)
        self._apply_threads()
        readings: list[Reading] | None = [] if self._watched else None
        result = self._interpret(arrays, readings)
        if readings:
            report_kernels([_step_time(reading) for reading in readings])
        if self.program.returns_value:
            return [result]
        if outputs is None:
            return self._own(result, arrays)
        copy_all(result, outputs)
        return list(outputs)

    def _controlled(self, values: Sequence[Any], control: RunControl) -> list[np.ndarray]:
        arrays = self._arrays(values)
        self._apply_threads()
        readings: list[Reading] | None = None if control.times is None else []
        result = self._interpret(arrays, readings, control.check)
        if control.times is not None:
            control.times += [_step_time(reading) for reading in readings or ()]
        return [result] if self.program.returns_value else self._own(result, arrays)

    def _apply_threads(self) -> None:
        count = threads.num_threads(self.manifest.threads)
        self._threading.apply(count)
        self._image.kernels.apply_threads(count)

    def _interpret(self, arrays: Sequence[np.ndarray], readings: list[Reading] | None,
                   check: Callable[[], None] | None = None) -> Value:
        scratch = self._scratches.take()
        try:
            machine = Machine(self._image, scratch, readings)
            return machine.run(self.program.entry, arrays, check)
        finally:
            self._scratches.give_back(scratch)

    def _timed(self, arrays: Sequence[np.ndarray]) -> tuple[float, list[Reading]]:
        readings: list[Reading] = []
        start = time.perf_counter()
        self._interpret(arrays, readings)
        return time.perf_counter() - start, readings

    def _arrays(self, values: Sequence[Any], *, is_bound: bool = False) -> list[np.ndarray]:
        """Arguments as arrays; the first argument with a symbolic dimension binds its value."""
        sizes: dict[str, int] = {}
        log = None if is_bound else self._fallbacks
        arrays = [to_numpy(value, with_sizes(spec, value, sizes), log)
                  for value, spec in zip(values, self.manifest.inputs, strict=True)]
        if self.program.returns_value:
            return [array.copy() for array in arrays]  # the caller keeps the right to write to his
        return arrays

    def _own(self, results: Sequence[np.ndarray], arrays: Sequence[np.ndarray]
             ) -> list[np.ndarray]:
        """The results, copied where they alias arguments, constants or each other."""
        taken = [self._constants, *arrays]
        own: list[np.ndarray] = []
        for result in results:
            if any(np.may_share_memory(result, other) for other in taken):
                result = result.copy()  # noqa: PLW2901
            own.append(result)
            taken.append(result)
        return own

    def _constant_arrays(self) -> list[np.ndarray]:
        arrays = []
        for spec in self.manifest.constants:
            raw = self._constants[spec.offset : spec.offset + spec.nbytes]
            array = raw.view(numpy_dtype(spec.dtype)).reshape(spec.shape)
            array.flags.writeable = False
            arrays.append(array)
        return arrays


def with_sizes(spec: TensorSpec, value: Any, sizes: dict[str, int]) -> TensorSpec:
    """``spec`` with symbolic dimensions replaced by known sizes, else by those of ``value``."""
    if all(isinstance(size, int) for size in spec.shape):
        return spec
    found = tuple(value.shape) if hasattr(value, "shape") else np.shape(value)
    if len(found) != len(spec.shape):
        return spec  # reading the value as an array words the error
    shape = []
    for size, given in zip(spec.shape, found, strict=True):
        if isinstance(size, str) and size.isidentifier():
            shape.append(sizes.setdefault(size, int(given)))
        else:
            shape.append(int(given) if isinstance(size, str) else size)
    return TensorSpec(spec.name, spec.dtype, tuple(shape))


def _step_time(reading: Reading, origin: float = 0.0) -> StepTime:
    kernel, start, end = reading
    facts = kernel.facts
    call = KernelCall(facts.symbol, (), facts.implementation, facts.op, facts.flops,
                      facts.bytes_moved)
    return StepTime(call, start - origin, max(end - start, 1e-9))
