"""The exception classes of weft and the format of their messages.

An error says *what* is wrong, *where*, what was *expected*, what was *got* and *how to fix it*.
Each is a separate attribute, so that tools and tests need not parse the message.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, TypeVar

E = TypeVar("E", bound="WeftError")


class WeftError(Exception):
    """Base class of all errors that weft raises.

    ``what`` is one line that names the problem and the operator or file it is about; ``where`` is
    a source position or node name; ``notes`` are further lines (one per missing operator, say).
    """

    code: ClassVar[str] = "E0001"

    def __init__(
        self,
        what: str,
        *,
        where: object = None,
        expected: object = None,
        got: object = None,
        notes: Sequence[str] = (),
        help: str | None = None,
    ) -> None:
        self.what = what
        self.where = None if where is None else str(where)
        self.expected = None if expected is None else str(expected)
        self.got = None if got is None else str(got)
        self.notes = tuple(notes)
        self.help = help
        super().__init__(self.render())

    def render(self) -> str:
        """The message as shown to the user, one field per line."""
        lines = [f"{self.code} {self.what}"]
        if self.where:
            lines.append(f"  --> {self.where}")
        if self.expected is not None:
            lines.append(f"  expected: {self.expected}")
        if self.got is not None:
            lines.append(f"  got: {self.got}")
        lines.extend(f"  {note}" for note in self.notes)
        if self.help:
            lines.append(f"  help: {self.help}")
        return "\n".join(lines)

    def at(self: E, location: str | None, *notes: str) -> E:
        """A copy with further notes, and with ``location`` unless the error has one already."""
        return _rebuild(type(self), self.what, self.where or location, self.expected, self.got,
                        (*self.notes, *notes), self.help)

    def __reduce__(self) -> tuple[object, ...]:
        # Errors cross process boundaries (parallel kernel builds) with their fields intact.
        return _rebuild, (
            type(self),
            self.what,
            self.where,
            self.expected,
            self.got,
            self.notes,
            self.help,
        )


def _rebuild(
    cls: type[E],
    what: str,
    where: str | None,
    expected: str | None,
    got: str | None,
    notes: tuple[str, ...],
    help_: str | None,
) -> E:
    # Not ``cls.__new__``: beside MemoryError that is a function which refuses such a class.
    error: E = BaseException.__new__(cls)
    WeftError.__init__(
        error, what, where=where, expected=expected, got=got, notes=notes, help=help_
    )
    return error


class OptionError(WeftError):
    """An invalid setting, environment variable, pass option or command-line value."""

    code = "E0010"


class RegistryError(WeftError):
    """An unknown or doubly registered name."""

    code = "E0011"


class TypeInferenceError(WeftError):
    """One or more ill-typed calls; ``errors`` holds each with its location."""

    code = "E0100"

    def __init__(
        self,
        what: str,
        *,
        where: object = None,
        expected: object = None,
        got: object = None,
        notes: Sequence[str] = (),
        help: str | None = None,
        errors: Sequence[WeftError] = (),
    ) -> None:
        self.errors = tuple(errors)
        super().__init__(
            what, where=where, expected=expected, got=got, notes=notes, help=help
        )

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild_inference, (super().__reduce__(), self.errors)


def _rebuild_inference(
    base: tuple[object, tuple[object, ...]], errors: tuple[WeftError, ...]
) -> WeftError:
    error = _rebuild(*base[1])  # type: ignore[arg-type]
    error.errors = errors
    return error


class AttrsError(WeftError):
    """An operator attribute that is unknown, of the wrong type, or out of range."""

    code = "E0101"


class OperatorError(WeftError):
    """An operator whose relation, compute, kernels, gradient and reference are inconsistent."""

    code = "E0102"


class ParseError(WeftError):
    """A syntax error in the weft language, with line, column and a caret."""

    code = "E0200"


class WellFormedError(WeftError):
    """A program that breaks a rule of the IR (scope, phase, types)."""

    code = "E0300"


class PassError(WeftError):
    """A pass that cannot run: unknown name, invalid options, unmet requirements."""

    code = "E0310"


class InvalidModelError(WeftError):
    """A model file that is corrupt or inconsistent."""

    code = "E0400"


class UnsupportedModelError(WeftError):
    """A valid model with features that weft does not support; lists all of them at once."""

    code = "E0401"


class InvalidInputError(WeftError):
    """Arguments of a compiled module that do not match its signature."""

    code = "E0500"


class AllocationError(WeftError, MemoryError):
    """Memory that a call or an allocation of a tensor needs and the system does not give."""

    code = "E0530"


class DataError(WeftError):
    """Training data that cannot be read, or a worker of a data loader that failed."""

    code = "E0510"


class RunCancelledError(WeftError):
    """A run that another thread cancelled; the module is as before."""

    code = "E0520"


class RunTimeoutError(WeftError):
    """A run that took longer than its ``timeout``; the module is as before."""

    code = "E0521"


class WorkerError(WeftError):
    """A worker that was lost or does not fit, or a scheduler that does not answer."""

    code = "E0550"


class ScheduleError(WeftError):
    """A schedule primitive that is not applicable; raised by the call."""

    code = "E0600"


class LoweringError(WeftError):
    """A program that cannot be lowered to loops on this target."""

    code = "E0610"


class CodegenError(WeftError):
    """A loop program for which code generation fails."""

    code = "E0700"


class TargetError(WeftError):
    """An unknown target, CPU or feature."""

    code = "E0710"


class MissingToolError(WeftError):
    """A program or library that the chosen target needs is not installed; says how to install it.

    Never a reason for another plan.
    """

    code = "E0715"


class StrictError(WeftError):
    """A change of plan that ``strict=True`` refuses (``weft.support.fallback``)."""

    code = "E0720"


class ArtifactError(WeftError):
    """An artifact that is corrupt, has an unknown format, or was built for another CPU."""

    code = "E0800"


class SignatureError(ArtifactError):
    """An artifact that no trusted key has signed."""

    code = "E0801"


class LinkerError(WeftError):
    """The linker was not found, or failed."""

    code = "E0810"


class CheckpointError(WeftError):
    """A checkpoint that is damaged, incomplete, or does not fit what is restored from it."""

    code = "E0820"


class DistributedError(WeftError):
    """A rank is dead, stopped, late, or runs another program than the others."""

    code = "E0830"


class InternalError(WeftError):
    """A violated invariant: a bug in weft."""

    code = "E9000"
