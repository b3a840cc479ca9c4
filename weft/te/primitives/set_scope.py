"""``set_scope``: the memory scope of a stage."""

from __future__ import annotations

from weft.te.state import StageState

STAGE_SCOPES = ("global", "local", "shared")


def set_scope(self: StageState, scope: str) -> None:
    """Store the stage in ``global`` memory, ``local`` registers or GPU ``shared`` memory.

    >>> B = te.compute((100,), lambda i: A[i] + 1.0, name="B")
    >>> C = te.compute((100,), lambda i: B[i] * 2.0, name="C")
    >>> s = te.create_schedule(C)
    >>> s[B].compute_at(s[C], C.op.axis[0])
    >>> print(s)
    B(100): at C.i
      i in 100
    C(100): root
      i in 100
    >>> s[B].set_scope("local")
    >>> print(s)
    B(100): at C.i, local
      i in 100
    C(100): root
      i in 100
    """
    if scope not in STAGE_SCOPES:
        raise self.error(f"unknown scope {scope!r}",
                         help=f"one of {', '.join(STAGE_SCOPES)}")
    if scope != "global":
        self.require_own_memory(f"set_scope {scope!r}")
        self.require_movable(f"set_scope {scope!r}")
    if scope != "global" and (self.is_output or self.is_placeholder):
        what = "an output" if self.is_output else "an input"
        raise self.error(f"set_scope {scope!r} of {what}, which is the caller's memory",
                         help=f"cache_{'write' if self.is_output else 'read'} makes a stage "
                              f"in scope {scope}")
    if scope == "local" and self.is_double_buffered:
        raise self.error("set_scope 'local' of a double buffer: registers cannot be indexed by "
                         "the iteration")
    self.scope = scope
