"""The exit codes of the command line."""

from __future__ import annotations

from weft.support.errors import InternalError, OptionError, UnsupportedModelError, WeftError

EXIT_USER_ERROR = 1
EXIT_USAGE = 2
EXIT_UNSUPPORTED = 3
EXIT_INTERNAL = 70


def exit_code(error: WeftError) -> int:
    """The exit code of the process for an error."""
    if isinstance(error, InternalError):
        return EXIT_INTERNAL
    if isinstance(error, UnsupportedModelError):
        return EXIT_UNSUPPORTED
    return EXIT_USAGE if isinstance(error, OptionError) else EXIT_USER_ERROR
