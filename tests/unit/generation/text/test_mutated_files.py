"""A sample of the damaged files of ``make test-language``, read in a child process."""

from __future__ import annotations

import os

from tests.language.mutated_files import in_a_child


def test_damaged_files_end_in_an_error_or_a_model() -> None:
    refused, read = in_a_child(300, int(os.environ.get("WEFT_TEST_SEED", "0")))
    assert refused + read == 300
    assert refused > 30
    assert read > 5
