"""Which files of a package are its sources."""

from __future__ import annotations

from pathlib import Path

from weft.support import file_content


def test_tables_of_machines_are_sources(tmp_path: Path) -> None:
    """They decide about code: a changed one has other cache keys."""
    for name in ("code.py", "machine.toml", "notes.txt"):
        (tmp_path / name).write_text("")
    found = {Path(path).name for path, *_ in file_content.source_states(str(tmp_path))}
    assert found == {"code.py", "machine.toml"}
