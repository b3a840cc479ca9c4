"""Proves the derivatives of all operators, and prints the result of each as a table.

``python -m tests.unit.op.differentiation_table [OPERATOR ..]``. The columns: cases, cases proved
(first and second order, forward and reverse mode), cases without a derivative (integers, points
without neighbours), and the reason for each other one.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.unit.op.differentiation import NothingToProveError, prove
from tests.unit.op.differentiation_exceptions import CONSTANT, reason_for
from weft import op as catalogue
from weft.cli.operator_list import reverse_mode
from weft.ir.op import OPS, Op

assert catalogue.__all__, "the import registers the operators"


@dataclass(slots=True)
class Row:
    """What was proved of one operator."""

    operator: Op
    proved: int = 0
    nothing: int = 0
    reasons: Counter[str] = field(default_factory=Counter)

    @property
    def text(self) -> str:
        reasons = "; ".join(f"{count}: {reason}" for reason, count in self.reasons.items())
        counts = f"{len(self.operator.cases):5} {self.proved:6} {self.nothing:6}"
        return f"{self.operator.name:40} {counts}  {reverse_mode(self.operator)[:13]:13} {reasons}"


def row_of(operator: Op) -> Row:
    """Prove each case of an operator."""
    row = Row(operator)
    for number, one in enumerate(operator.cases):
        listed = reason_for(f"{operator.name}-{number}") or operator.no_gradient_reason
        try:
            prove(operator, one, constant=CONSTANT.get(operator.name, ()))
            row.proved += 1
        except NothingToProveError:
            row.nothing += 1
        except Exception as error:  # noqa: BLE001 - the table shows whatever went wrong
            row.reasons[listed or f"NOT PROVED: {str(error).splitlines()[0]}"] += 1
    return row


def main(names: Sequence[str]) -> int:
    """Print the table; 1 if a case is neither proved nor listed."""
    print(f"{'operator':40} cases proved   none  reverse mode  other cases, and why")
    rows = []
    for name in names or tuple(OPS):
        rows.append(row_of(OPS.get(name)))
        print(rows[-1].text, flush=True)
    other = sum(sum(row.reasons.values()) for row in rows)
    holes = sum(count for row in rows for reason, count in row.reasons.items()
                if reason.startswith("NOT PROVED"))
    print(f"{len(rows)} operators, {sum(len(r.operator.cases) for r in rows)} cases: "
          f"{sum(r.proved for r in rows)} proved in both modes and orders, "
          f"{sum(r.nothing for r in rows)} without a derivative, {other} with a reason, "
          f"of which {holes} are not explained")
    return int(holes > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
