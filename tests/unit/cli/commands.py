"""One command of the command line, run in this process."""

from __future__ import annotations

import pytest

from weft.cli.main import main


def run(arguments, capsys):
    """The exit code, and what the command wrote to both streams."""
    with pytest.raises(SystemExit) as end:
        main([str(a) for a in arguments])
    out, err = capsys.readouterr()
    return end.value.code, out, err
