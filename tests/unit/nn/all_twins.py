"""All layers beside torch's: ``make test-layers``. The suite compares one of each family.

    python -m tests.unit.nn.all_twins [PATTERN]

``WEFT_TEST_SHARE`` takes a seeded share of them.
"""

from __future__ import annotations

import sys
import traceback
import warnings
from fnmatch import fnmatch

from tests.sampling import sampled
from tests.unit.nn.twin_table import ALL
from tests.unit.nn.twins import check


def main() -> None:
    """Compare the layers whose name fits the pattern."""
    warnings.simplefilter("ignore")  # torch's, of arguments that it will change
    pattern = sys.argv[1] if len(sys.argv) > 1 else "*"
    fitting = [twin for twin in ALL if fnmatch(twin.name, pattern)]
    chosen = sampled("layers", fitting, share=1)
    failed = 0
    for twin in chosen:
        try:
            check(twin)
        except Exception:  # noqa: BLE001 - the sweep goes on, and reports
            failed += 1
            print(f"{twin.label}\n{traceback.format_exc(limit=-3)}", flush=True)
    print(f"{len(chosen)} layers, {failed} differ")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
