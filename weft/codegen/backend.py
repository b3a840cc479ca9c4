"""``Backend``: everything that differs between the kinds of targets, in one interface.

A kind of target consists of a ``Target`` subclass (``weft.target``) and a back end, which names the
other parts: the module of its schedules (``weft.strategy``), its cost model
(``weft.codegen.cost_model``), its launcher (``weft.runtime.launchers``) and its memory spaces. A
loader reads the code of its artifacts (``weft.runtime.library.register_loader``).
docs/tutorials/add_target.md adds a kind. The rest of the compiler finds the back end by
``backend_of(target)`` and imports none of its modules.
"""

from __future__ import annotations

import abc
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from weft.codegen.cost_model import CostModel
from weft.codegen.launch import LaunchProgram
from weft.ir.passes import PassContext
from weft.runtime.device import HOST, HOST_MEMORY, Device, MemorySpace
from weft.runtime.devices.sim.description import SIM
from weft.runtime.launchers import Launcher, launcher_class
from weft.runtime.library import Library
from weft.runtime.manifest import ARGUMENT_KINDS, Manifest, TargetSpec
from weft.support.dataclass import dataclass
from weft.support.errors import RegistryError, TargetError
from weft.support.interpreter import interrupts_held
from weft.support.log import Level
from weft.support.registry import Registry
from weft.support.stage_times import stage
from weft.support.suggestion import did_you_mean
from weft.target import Target
from weft.target.cpu_target import default_triple
from weft.tir.limits import Limits

if TYPE_CHECKING:
    from weft.tir import Instruction, PrimFunc
    from weft.tir.transform.pipeline import TirInstrument
    from weft.tir.transform.registered import TirInsertion, TirPass

T = TypeVar("T", bound=Target)


@dataclass(frozen=True, slots=True)
class TextStage(Generic[T]):
    """A text form of a lowered kernel that the back end can print.

    ``title`` heads it in the log at ``level``, ``suffix`` names dumped files, and ``comment``
    starts a comment line in it.
    """

    title: str
    suffix: str
    comment: str
    level: Level
    text: Callable[[PrimFunc, T], str]


class Backend(abc.ABC, Generic[T]):
    """The answers for targets of one kind; a stateless object.

    A subclass must define ``kind``, ``build_kernel`` and ``load``. Without ``build_main`` the
    launcher ``launched_by`` calls the kernels in the order of the manifest.
    """

    kind: ClassVar[str]
    # What loop programs may use. The module that registers the strategies and schedules of the
    # kind is imported when they are first asked for. So is what a text "module:name" names here:
    # the passes that lower loop programs, the class of the cost model, and the tensor instructions
    # that schedules may use (among equals the first is preferred).
    limits: ClassVar[Limits] = Limits()
    strategies: ClassVar[str | None] = None
    tir_passes: ClassVar[Sequence[TirPass] | str] = "weft.tir.transform.pipeline:TIR_PIPELINE"
    cost_model_class: ClassVar[type[CostModel] | str] = CostModel
    instructions: ClassVar[Sequence[Instruction] | str] = ()
    # The device of all kernels, and the memory spaces of a program: one arena is planned for each.
    # Temporaries are in the first space of the device. Inputs, outputs and constants are in host
    # memory; the launcher or the kernels make them accessible.
    device: ClassVar[Device] = HOST
    # Whether ``build_main`` computes symbolic sizes. If not, models with dynamic shapes are
    # compiled once for each set of input shapes.
    takes_sizes: ClassVar[bool] = False
    # The name of the launcher of programs without a main function (``weft.runtime.launchers``).
    launched_by: ClassVar[str] = "steps"
    memory_spaces: Sequence[MemorySpace] = (HOST_MEMORY,)

    @property
    def launcher(self) -> type[Launcher]:
        """The class that runs programs without a main function; it says what the runtime does."""
        return launcher_class(self.launched_by)

    def cost_model(self, target: T) -> CostModel:
        """The estimates for a target: seconds of a call, rates, and what fusion may use."""
        kind: type[CostModel] = _resolved(self.cost_model_class)
        return kind(target)

    @property
    def loop_passes(self) -> Sequence[TirPass]:
        """The passes that lower loop programs, in order."""
        return _resolved(self.tir_passes)

    @property
    def tensor_instructions(self) -> Sequence[Instruction]:
        """The tensor instructions that schedules may use."""
        return _resolved(self.instructions)

    def on_devices(self, devices: Sequence[Device]) -> Backend[T]:
        """The back end of a program on these devices; none: on that of the target alone.

        It names the launcher and the memory spaces of the program. Raises ``TargetError`` for
        devices that run no parts of a program of this kind.
        """
        other = next((one for one in devices if one not in (HOST, self.device)), None)
        if other is not None:
            runs = HOST if self.device == HOST else f"{self.device}, and {HOST} beside it"
            kinds = (HOST.kind, SIM, self.device.kind)
            near = "" if other.kind in kinds else did_you_mean(other.kind, kinds)
            raise TargetError(f"a program for {self.kind!r} cannot run on {other}", expected=runs,
                              help=near or 'simulated devices run kernels for CPUs: target="cpu"')
        return self

    @stage("passes over loops")
    def lower(self, func: PrimFunc, *, insertions: Sequence[TirInsertion] = (),
              instruments: Sequence[TirInstrument] = (), verify: bool = False) -> PrimFunc:
        """A scheduled loop nest as input of ``build_kernel``; ``insertions`` are a user's passes.

        Raises ``LoweringError`` for a program beyond ``limits``.
        """
        from weft.tir.check_limits import check_limits
        from weft.tir.transform.pipeline import lower_prim_func

        check_limits(func, self.limits, self.kind)
        return lower_prim_func(func, self.loop_passes, insertions=insertions,
                               instruments=instruments, verify=verify)

    @abc.abstractmethod
    def build_kernel(self, func: PrimFunc, target: T) -> bytes:
        """The object code of a lowered kernel, found by the symbol ``func.name``.

        Equal functions give equal bytes. Raises ``CodegenError`` for a program that the target
        cannot run.
        """

    def kernel_key(self, func: PrimFunc, target: T) -> str | None:
        """A text that determines ``build_kernel(func, target)``; ``None``: do not cache it."""
        return None

    def callback_kernel(self, symbol: str, address: int, num_args: int, target: T) -> bytes:
        """Object code of a kernel that calls the C function at ``address`` of this process."""
        raise self._unsupported(f"the Python code of {symbol}", target)

    def check_object(self, code: bytes, symbol: str, where: str) -> None:
        """Raise ``CodegenError`` if object code of another generator does not define ``symbol``."""
        raise TargetError(f"object code of other generators is not supported for {self.kind!r}",
                          where=where)

    def build_main(self, program: LaunchProgram, target: T) -> bytes | None:
        """Object code of a function that makes all launches; ``None``: the runtime makes them.

        Its symbol and signature are those of ``weft.runtime.manifest.MAIN_SYMBOL``.
        """
        return None

    def build_segments(self, segments: Mapping[str, LaunchProgram], target: T) -> bytes:
        """Object code of a function for each segment of a program for several devices.

        The keys are their symbols; the signature is that of ``MAIN_SYMBOL``, with the constants and
        the arena of the device that runs the segment.
        """
        raise self._unsupported("programs for simulated devices", target)

    def build_loop(self, symbol: str, program: LaunchProgram, target: T, *, has_workspace: bool
                   ) -> bytes:
        """Object code of a kernel that makes the launches of a program without constants.

        It takes the inputs, the outputs, and with ``has_workspace`` the arena.
        """
        raise self._unsupported("loops as kernels", target)

    def support_objects(self, target: T) -> tuple[bytes, ...]:
        """Object code that every loaded program contains beside its kernels."""
        return ()

    @abc.abstractmethod
    def load(self, objects: Sequence[bytes], target: T) -> Library:
        """The objects of a program as code that can be called in this process."""

    def link(self, objects: Sequence[bytes], target: T) -> bytes:
        """The code of an artifact, which the loader of this kind (``register_loader``) reads."""
        raise self._unsupported("an artifact", target)

    def c_object(self, name: str, manifest: Manifest, objects: Sequence[bytes],
                 constants: memoryview, target: T) -> bytes:
        """One object with the functions of ``NAME.h``, to be linked into a C program."""
        raise self._unsupported("a C object", target)

    def target_spec(self, target: T) -> TargetSpec:
        """The machine that a program needs; the runtime compares it with its own."""
        return TargetSpec(default_triple(), str(target), kind=self.kind)

    @property
    def text_stages(self) -> Mapping[str, TextStage[T]]:
        """The texts between loop program and object code, by the name that ``--emit`` takes."""
        return {}

    def _unsupported(self, what: str, target: T) -> TargetError:
        return TargetError(f"targets of kind {self.kind!r} do not support {what}", got=target)


def _resolved(value: Any) -> Any:
    """``value``, or what a text ``module:name`` names."""
    if not isinstance(value, str):
        return value
    with interrupts_held():
        return pkgutil.resolve_name(value)


BACKENDS: Registry[Backend[Any]] = Registry("back end")


def register_backend(backend: Backend[Any]) -> None:
    """Use ``backend`` for all targets of its kind.

    Raises ``RegistryError`` if the kind has one, or if the names of its memory spaces are ambiguous
    as kinds of kernel arguments.
    """
    named = [space.name for space in backend.memory_spaces if space != HOST_MEMORY]
    if len({*named, *ARGUMENT_KINDS}) < len(named) + len(ARGUMENT_KINDS):
        raise RegistryError(
            f"ambiguous names of memory spaces of back end {backend.kind!r}",
            got=", ".join(named),
            expected=f"distinct names other than {', '.join(ARGUMENT_KINDS)}",
            help="arena is the name of HOST_MEMORY; name other spaces by MemorySpace(name)")
    BACKENDS.register(backend.kind, backend)


def backend_of(target: T) -> Backend[T]:
    """The back end of a target; ``TargetError`` if its kind has none."""
    backend = BACKENDS.find(target.kind)
    if backend is None:
        raise TargetError(f"no back end is registered for targets of kind {target.kind!r}",
                          got=target, expected=f"a target of kind {', '.join(BACKENDS)}",
                          help="register one with weft.codegen.register_backend")
    return backend


def cost_model_of(ctx: PassContext) -> CostModel | None:
    """The cost model of a compilation: that of the back end of its target, ``None`` without one.

    A context without a target may give one as ``config["cost_model"]``.
    """
    found: CostModel | None = ctx.config.get("cost_model")
    if found is None and isinstance(ctx.target, Target):
        return backend_of(ctx.target).cost_model(ctx.target)
    return found
