"""The rank that this process is: ``init``, ``rank``, ``world_size``."""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import platform
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from weft.distributed.communicator import gloo, local, mpi
from weft.distributed.communicator.base import Communicator
from weft.distributed.communicator.current import CURRENT
from weft.distributed.communicator.health import TIMEOUT
from weft.support.errors import DistributedError, OptionError

BACKENDS = ("gloo", "mpi", "local")
# The variables of torchrun, of MPICH's mpiexec and of Open MPI's: rank and number of ranks.
_VARIABLES = {"torchrun": ("RANK", "WORLD_SIZE"), "mpiexec": ("PMI_RANK", "PMI_SIZE"),
              "Open MPI": ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")}


def communicator() -> Communicator:
    """The communicator of all ranks. Without ``init`` it is that of a world of one."""
    if CURRENT.of_thread is not None:
        return CURRENT.of_thread
    if CURRENT.of_process is None:
        CURRENT.of_process = local.alone()
    return CURRENT.of_process


def rank() -> int:
    """The number of this process in the run."""
    return communicator().rank


def world_size() -> int:
    """How many processes the run has."""
    return communicator().size


def init(backend: str | None = None, *, deterministic: bool = False, timeout: float = TIMEOUT,
         program: str | None = None) -> Communicator:
    """Join the other ranks, as the environment of the launcher says.

    ``python -m weft.distributed.run``, torchrun and mpiexec start such processes; without a
    launcher the world has one rank. ``backend`` is ``gloo``, ``mpi`` or ``local``, else what the
    launcher goes with. ``timeout`` limits how long a rank may compute while others wait.
    ``program`` names what all ranks must agree on beside versions; the default is the digest of
    the script.

    Raises ``DistributedError`` if a rank does not come or runs another program, and
    ``OptionError`` for an environment that says nothing sensible.
    """
    if backend is not None and backend not in BACKENDS:
        raise OptionError("an unknown back end", got=backend, expected=", ".join(BACKENDS))
    launcher = next((name for name, pair in _VARIABLES.items() if pair[0] in os.environ), None)
    if backend is None:
        backend = {None: "local", "torchrun": "gloo"}.get(launcher, "mpi")
    finish()
    if backend == "local":
        made = local.alone(deterministic=deterministic)
    elif backend == "mpi":
        made = mpi.connect(deterministic=deterministic, timeout=timeout)
    else:
        number, size = (_number(v) for v in _VARIABLES[launcher or "torchrun"])
        made = gloo.connect(number, size, os.environ.get("MASTER_ADDR", "127.0.0.1"),
                            _number("MASTER_PORT"), deterministic=deterministic, timeout=timeout)
    CURRENT.of_process = made
    try:
        check_agreement(made, _versions(program), "runs another program or version")
    except BaseException:
        finish()
        raise
    return made


def finish() -> None:
    """Leave the world."""
    made, CURRENT.of_process = CURRENT.of_process, None
    if made is not None:
        made.close()


atexit.register(finish)


def _number(variable: str) -> int:
    text = os.environ.get(variable)
    if text is None or not text.isdecimal():
        raise OptionError(f"{variable} is not a number", got=text or "not set",
                          help="start with: python -m weft.distributed.run -n 4 script.py")
    return int(text)


def _versions(program: str | None) -> dict[str, str]:
    import weft

    script = Path(getattr(sys.modules.get("__main__"), "__file__", None) or "")
    if program is None:
        program = hashlib.sha256(script.read_bytes()).hexdigest()[:16] if script.is_file() else ""
    return {"weft": weft.__version__, "numpy": np.__version__, "byte order": sys.byteorder,
            "Python": ".".join(platform.python_version_tuple()[:2]), "program": program}


def check_agreement(group: Communicator, facts: Mapping[str, Any], what: str) -> None:
    """Raise ``DistributedError`` on all ranks if the facts of one are not those of rank 0."""
    found = [json.loads(b) for b in group.gather_bytes(json.dumps(facts).encode())]
    notes = [f"rank {r}: {key} is {one.get(key)}, on rank 0 {found[0].get(key)}"
             for r, one in enumerate(found) for key in {**found[0], **one}
             if one.get(key) != found[0].get(key)]
    if notes:
        others = sorted({int(note.split(":")[0][5:]) for note in notes})
        raise DistributedError(f"rank {', '.join(map(str, others))} {what}",
                               where=f"rank {group.rank}", notes=notes[:20])
