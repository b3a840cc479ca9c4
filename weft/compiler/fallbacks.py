"""The changes of plan that the compiler makes, as records for ``weft.support.fallback``.

Each function states what happens instead, and what it costs. docs/performance.md, "What weft does
instead", gives the rule that decides which of them are warned of.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from weft.runtime.manifest import Manifest, TensorSpec
from weft.runtime.vm.program import VmKernel
from weft.support.errors import InternalError, MissingToolError, OptionError, WeftError
from weft.support.fallback import Fallback, reason_of

# The time of a compilation of a small model, and of one of some hundred operators.
_COMPILE_TIME = "0.1 to 5 s"


def permits_another_plan(error: WeftError) -> bool:
    """Whether a plan that fails with ``error`` may be replaced by another one.

    Not where weft has a defect, the user gave a wrong option, or a tool is not installed.
    """
    return not isinstance(error, (InternalError, MissingToolError, OptionError))


def program_per_shapes(manifest: Manifest, error: WeftError, *, asked: bool = False) -> Fallback:
    """A program for each set of input shapes, as there is none for all sizes.

    ``asked``: a setting asks for it.
    """
    dynamic = [spec for spec in manifest.inputs if _unknown(spec)]
    sizes = " and ".join(f"axis {axis} ({size}) of input {spec.name!r}"
                         for spec in dynamic for axis, size in _unknown(spec))
    return Fallback(
        f"a program is compiled for each new set of input shapes: {sizes or manifest.signature()}",
        reason_of(error),
        f"each new set of shapes is compiled at its first call: {_COMPILE_TIME}; such a model is "
        "not kept in the cache, and is exported with the shapes that it was called with",
        _sizes_to_give(dynamic), listed_only=asked)


def program_of_weights(names: Sequence[str]) -> Fallback:
    """Another program for the weights that were set."""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return Fallback(
        f"another program is compiled for the weights {', '.join(names[:3])}{more}",
        "values decide parts of a program: zeros and ones are folded, equal weights are kept once",
        "kernels that the program before did not have are compiled, once",
        "compile the model with weights that differ from each other and from zeros and ones")


def _unknown(spec: TensorSpec) -> list[tuple[int, str]]:
    return [(axis, size) for axis, size in enumerate(spec.shape) if isinstance(size, str)]


def _sizes_to_give(dynamic: Sequence[TensorSpec]) -> str:
    fixed = _inputs((spec, [1 if isinstance(n, str) else n for n in spec.shape])
                    for spec in dynamic)
    give = f"give the sizes, for example weft.compile(model, {fixed})"
    if not any("?" in spec.shape for spec in dynamic):
        return give
    named = _inputs((spec, [f"n{axis}" if n == "?" else n for axis, n in enumerate(spec.shape)])
                    for spec in dynamic)
    return f"name the sizes, as in weft.compile(model, {named}), or {give}"


def _inputs(shapes: Iterable[tuple[TensorSpec, Sequence[object]]]) -> str:
    given = {spec.name: tuple(shape) for spec, shape in shapes}
    return f"inputs={given}"


def program_for_shapes(manifest: Manifest) -> Fallback:
    """A program compiled for shapes outside of the ranges of the one for all sizes."""
    return Fallback(
        "a program is compiled for input shapes that the one for all sizes does not cover",
        f"the importer assumed ranges of the sizes in {manifest.signature()}",
        f"each new set of such shapes is compiled at its first call: {_COMPILE_TIME}",
        "give these inputs a name and a range that has the size, as in "
        'inputs={"x": ("1 <= n", 8)}')


def sizes_of_data_unknown(error: WeftError) -> Fallback:
    """Sizes that data determines are not symbols of the program."""
    return Fallback(
        "sizes that data determines are unknown to the compiler, not symbols of one program",
        reason_of(error), "their kernels cannot be compiled ahead of time",
        error.help or "bound the sizes, or give results a fixed size", listed_only=True)


def on_virtual_machine(error: WeftError) -> Fallback:
    """A program of the virtual machine, which the language of the program asks for."""
    return Fallback(
        "the virtual machine runs the program", reason_of(error),
        "about a microsecond per instruction, and memory that is allocated in each call",
        "write loops (while_loop, scan) in place of recursion, closures and data types",
        listed_only=True)


def kernels_compiled_at_calls(manifest: Manifest, error: WeftError, *, asked: bool) -> Fallback:
    """Kernels of the virtual machine whose sizes only a call determines.

    ``asked``: a setting asks for it.
    """
    kernels = () if manifest.vm is None else manifest.vm.kernels
    names = kernel_names([k for k in kernels if k.source])
    return Fallback(
        f"kernels are compiled during calls, for each new set of shapes: {names}",
        reason_of(error), f"0.1 s or more for each kernel and new set of shapes ({_COMPILE_TIME} "
        "in all); an artifact has those that can be compiled for all shapes at once",
        "give all sizes of the inputs, and bound the sizes that data determines",
        listed_only=asked)


def kernels_exported_as_met(kernels: Sequence[VmKernel]) -> Fallback:
    """Kernels of an artifact that have no form for all sizes."""
    return Fallback(
        f"kernels are exported for the shapes that calls have met: {kernel_names(kernels)}",
        "no strategy of these operators compiles them for all shapes at once",
        "without a compiler, the artifact refuses other shapes",
        "call the model with the shapes that the artifact shall have, and export it again")


def kernel_names(kernels: Sequence[VmKernel]) -> str:
    """The operators of kernels, each once."""
    return ", ".join(dict.fromkeys(kernel.op for kernel in kernels))


def program_on_host(device: str, error: WeftError) -> Fallback:
    """A program for another device that the host runs whole."""
    return Fallback(
        f"the host runs the whole program; nothing runs on {device}",
        f"the program needs the virtual machine: {reason_of(error)}",
        "the time of the program on the CPU",
        "write loops in place of recursion, closures and data types, and give all sizes")


def kernel_on_host(kernel: str, device: str, error: BaseException) -> Fallback:
    """A kernel that the device of the target refuses."""
    cure = error.help if isinstance(error, WeftError) else None
    return Fallback(
        f"{kernel} runs on the host, not on {device}", reason_of(error),
        "a kernel on the CPU, and at each call copies of its operands and results between the "
        "host and the device",
        cure or "compute it with other dtypes, sizes or operators (docs/cuda.md lists what runs)")


def kernels_beside_host(kernels: Iterable[str], device: str) -> Fallback:
    """Kernels that run on the host since what they read and write is there."""
    return Fallback(
        f"on the host, not on {device}: {', '.join(kernels)}",
        "they exchange data with what runs on the host", "less than the copies would take",
        "what runs on the host is listed beside this", listed_only=True)


def copied_in_place(kernels: Iterable[str]) -> Fallback:
    """Kernels that were to update a buffer in place. Most training steps have one, and the copy is
    made once per call, so it is listed without a warning.
    """
    return Fallback(
        f"a buffer is copied, not updated in place, for: {', '.join(kernels)}",
        "the kernel reads elements after it has written others",
        "one copy of the buffer per call", "update the buffer by another operator",
        listed_only=True)
