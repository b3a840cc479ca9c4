"""The stages of a compilation as a table: seconds by the clock, of CPUs, and their shares."""

from __future__ import annotations

from weft.runtime.profile import render_table
from weft.support.stage_times import StageTimes

_COLUMNS = ("stage", "seconds", "of CPUs", "share", "runs")
# Stages with less of the CPU time than this are summed up in the last line.
_SMALL = 0.005


def timing_table(times: StageTimes, seconds: float) -> str:
    """The stages with the most CPU time first; ``seconds`` is what the whole took by the clock.

    The last rows are the stages with less than half a percent, the CPU time of this process in none
    (threads that wait by spinning, for one), and the sum over all threads and processes.
    """
    rows = times.rows()
    outside = times.outside()
    total = sum(cpu for _, _, cpu, _ in rows) + outside
    shown = [row for row in rows if row[2] >= _SMALL * total]
    small = rows[len(shown):]
    if small:
        name = f"{len(small)} stages below {_SMALL:.1%} each"
        shown.append((name, sum(row[1] for row in small), sum(row[2] for row in small),
                      sum(row[3] for row in small)))
    cells = [(name, f"{spent:.3f}", f"{cpu:.3f}", f"{cpu / total:.1%}" if total else "",
              str(count)) for name, spent, cpu, count in shown]
    cells.append(("in no stage, on all threads", "", f"{outside:.3f}",
                  f"{outside / total:.1%}" if total else "", ""))
    cells.append(("all, by the clock and of CPUs", f"{seconds:.3f}", f"{total:.3f}", "", ""))
    return render_table(_COLUMNS, cells, left=("stage",))
