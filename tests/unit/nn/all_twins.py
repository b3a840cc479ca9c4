"""All layers beside torch's: ``make test-layers``. The suite compares one of each family.

    python -m tests.unit.nn.all_twins [PATTERN]

``WEFT_TEST_SHARE`` takes a seeded share of them. Behind the layers of ``twin_table`` come the
inputs of torch's own test database, whose failures are counted by kind.
"""

from __future__ import annotations

import sys
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from fnmatch import fnmatch
from operator import attrgetter
from typing import Any

from tests.sampling import drawn, is_whole, sampled
from tests.unit.nn import torch_inputs, twins
from tests.unit.nn.twin_table import ALL


def compare(title: str, chosen: list[Any], check: Callable[[Any], None]) -> int:
    """Check each; print the failures, and how many there are of each kind."""
    kinds: Counter[str] = Counter()
    for twin in chosen:
        try:
            check(twin)
        except Exception as error:  # noqa: BLE001 - the sweep goes on, and reports
            kind = torch_inputs.kind_of(error)
            kinds[kind] += 1
            print(f"{twin.label}: {kind}\n{traceback.format_exc(limit=-3)}", flush=True)
    failed = sum(kinds.values())
    print(f"{title}: {len(chosen) - failed} of {len(chosen)} agree"
          + "".join(f", {count} {kind}" for kind, count in kinds.most_common()), flush=True)
    return failed


def main() -> None:
    """Compare the layers whose name fits the pattern."""
    warnings.simplefilter("ignore")  # torch's, of arguments that it will change
    pattern = sys.argv[1] if len(sys.argv) > 1 else "*"
    layers = [each for each in ALL if fnmatch(each.name, pattern)]
    inputs = [each for each in torch_inputs.cases() if fnmatch(each.name, pattern)]
    if not is_whole():  # thousands of inputs of a few layers
        inputs = drawn("inputs", inputs, max(1, len(inputs) // 15), attrgetter("label"))
    failed = compare("layers", sampled("layers", layers, share=1,
                                              label=attrgetter("label")), twins.check)
    failed += compare("inputs of torch's database",
                      [each for each in inputs if not torch_inputs.reason_for(each)],
                      torch_inputs.check)
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
