"""Whether a tag may be released: ``python3 tools/check_release.py v1.2.3``.

Every file that states a version states this one, and the changelog has its heading. Without a tag,
the files are compared with each other.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CONDA = "packaging/conda/recipe.yaml"
RUNTIME = "packaging/runtime/pyproject.toml"


def stated_versions(root: Path = ROOT) -> dict[str, str]:
    """The version that each file states; empty where a file states none."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    return {"pyproject.toml": project["project"]["version"],
            "weft/__init__.py": _found(root / "weft/__init__.py", r'^__version__ = "(.+)"$'),
            RUNTIME: _found(root / RUNTIME, r'^version = "(.+)"$'),
            "CITATION.cff": _found(root / "CITATION.cff", r"^version: (.+)$"),
            CONDA: _found(root / CONDA, r'^package:.*version: "(.+)"\}$')}


def problems(tag: str | None, root: Path = ROOT) -> list[str]:
    """What stands against the release, a sentence each."""
    versions = stated_versions(root)
    wanted = versions["pyproject.toml"] if tag is None else tag.removeprefix("v")
    found = [f"{path} states {version or 'no version'}, not {wanted}"
             for path, version in versions.items() if version != wanted]
    if tag is None:
        return found
    if not re.fullmatch(r"v\d+\.\d+\.\d+(rc\d+)?", tag):
        found.append(f"{tag} is not a tag such as v1.2.3")
    if f"## {wanted}" not in (root / "CHANGELOG.md").read_text(encoding="utf-8"):
        found.append(f"CHANGELOG.md has no heading '## {wanted}': run towncrier build")
    left = [path.name for path in (root / "changelog.d").glob("*.md") if path.name != "README.md"]
    return [*found, *(f"changelog.d/{name} is not in the changelog" for name in sorted(left))]


def _found(path: Path, pattern: str) -> str:
    match = re.search(pattern, path.read_text(encoding="utf-8"), re.MULTILINE)
    return "" if match is None else match[1]


def main(arguments: list[str]) -> int:
    found = problems(arguments[0] if arguments else None)
    print("\n".join(found) or "ready")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
