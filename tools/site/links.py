"""``python -m tools.site.links``: ask every address that the pages link to, by Sphinx's linkcheck.

It needs a network, so no other check runs it. An address has ten seconds and two attempts, the
whole ``--limit`` seconds. The exit code is 0 if every address answers, 1 if some do not, and 2 if
none does, as without a network.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_OPTIONS = {"linkcheck_timeout": 10, "linkcheck_retries": 2, "linkcheck_workers": 8,
            "linkcheck_rate_limit_timeout": 30, "exclude_patterns": "operators/*"}
_BROKEN = ("broken", "timeout", "rate_limited")


@dataclass(frozen=True)
class Link:
    """An address, the line of a page that links to it, and what became of the request."""

    filename: str
    lineno: int
    status: str
    code: int
    uri: str
    info: str

    def __str__(self) -> str:
        return f"{self.filename}:{self.lineno}: {self.status} {self.uri} {self.info}".rstrip()


def read(lines: str) -> list[Link]:
    """The external links of linkcheck's ``output.json``, which has an object in each line."""
    every = (json.loads(line) for line in lines.splitlines() if line)
    fields = Link.__dataclass_fields__
    return [Link(**{name: one[name] for name in fields}) for one in every
            if one["status"] not in ("local", "ignored", "unchecked")]


def check(docs: Path, out: Path, limit: float) -> list[Link]:
    """Ask for all links of the site of ``docs``; after ``limit`` seconds, ``TimeoutExpired``."""
    options = [word for name, value in _OPTIONS.items() for word in ("-D", f"{name}={value}")]
    result = out / "output.json"
    result.unlink(missing_ok=True)
    subprocess.run([sys.executable, "-m", "sphinx", "-Q", "-b", "linkcheck", *options,
                    str(docs), str(out)], cwd=ROOT, check=False, timeout=limit)
    return read(result.read_text("utf-8"))


def report(links: list[Link]) -> int:
    """Print the addresses that do not answer or have moved for good; the exit code."""
    broken = [link for link in links if link.status in _BROKEN]
    moved = [link for link in links if link.status == "redirected" and link.code in (301, 308)]
    print(*broken, *moved, sep="\n", end="\n" if broken or moved else "")
    print(f"{len(links)} links, {len(broken)} broken, {len(moved)} moved")
    if broken and len(broken) == len(links):
        print("no address answers: is there a network?")
        return 2
    return bool(broken)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("docs", type=Path, nargs="?", default=ROOT / "docs")
    parser.add_argument("--out", type=Path, default=ROOT / "out" / "links")
    parser.add_argument("--limit", type=float, default=600, metavar="SECONDS")
    asked = parser.parse_args()
    return report(check(asked.docs, asked.out, asked.limit))


if __name__ == "__main__":
    sys.exit(main())
