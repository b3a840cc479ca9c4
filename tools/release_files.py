"""Write what wheels carry beside the package: lists of dependencies, and the manual page.

    python -m tools.release_files             write them
    python -m tools.release_files --check     name outdated files; exit code 1

The lists are CycloneDX documents, which wheels hold in ``.dist-info/sboms``. They have neither time
nor serial number, so that two builds are equal; versions are the ranges that the project states.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
MAN_PAGE = ROOT / "packaging" / "weft.1"
PROJECTS = {ROOT / "pyproject.toml": ROOT / "packaging" / "weft.cdx.json",
            ROOT / "packaging" / "runtime" / "pyproject.toml":
                ROOT / "packaging" / "runtime" / "weft-runtime.cdx.json"}
# Extras with what users run; the others are for those who build, test and measure weft.
TOOLS = frozenset({"all", "bench", "dev", "docs", "docs-test", "language-test", "targets-test",
                   "test", "torch-test"})


def bill_of_materials(project: Path) -> str:
    """The CycloneDX document of a ``pyproject.toml``."""
    facts = tomllib.loads(project.read_text(encoding="utf-8"))["project"]
    name = facts["name"]
    root = {"type": "library", "bom-ref": name, "name": name, "version": facts["version"],
            "description": facts["description"], "purl": f"pkg:pypi/{name}@{facts['version']}",
            "licenses": [{"license": {"id": facts["license"]}}]}
    components = _components(facts)
    document = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json", "bomFormat": "CycloneDX",
        "specVersion": "1.6", "version": 1, "metadata": {"component": root},
        "components": components,
        "dependencies": [{"ref": name, "dependsOn": [c["bom-ref"] for c in components]}]}
    return json.dumps(document, indent=1) + "\n"


def _components(facts: dict[str, Any]) -> list[dict[str, Any]]:
    """The dependencies, those of extras as optional ones; a package once."""
    extras = facts.get("optional-dependencies", {})
    stated = [(line, "") for line in facts["dependencies"]]
    stated += [(line, extra) for extra in extras if extra not in TOOLS for line in extras[extra]]
    found: dict[str, dict[str, Any]] = {}
    for line, extra in stated:
        name = re.match(r"[\w.-]+", line)
        assert name is not None, line
        if name[0] == facts["name"]:
            continue  # an extra of its own
        package = re.sub(r"[-_.]+", "-", name[0]).lower()
        entry = found.setdefault(package, {
            "type": "library", "bom-ref": package, "name": package, "purl": f"pkg:pypi/{package}",
            "scope": "optional" if extra else "required", "properties": []})
        entry["properties"].append({"name": f"weft:requirement{extra and ':' + extra}",
                                    "value": line})
    return [found[name] for name in sorted(found)]


def man_page() -> str:
    """The manual page of this version."""
    from weft.cli.main import cli
    from weft.cli.man_page import man_page as page

    return page(cli)


def main(arguments: list[str]) -> int:
    texts = {path: bill_of_materials(project) for project, path in PROJECTS.items()}
    texts[MAN_PAGE] = man_page()
    stale = [path for path, text in texts.items()
             if not path.exists() or path.read_text(encoding="utf-8") != text]
    for path in stale:
        if arguments == ["--check"]:
            print(f"{path.relative_to(ROOT)} is not of this version: python -m tools.release_files")
        else:
            path.write_text(texts[path], encoding="utf-8")
    return 1 if stale and arguments == ["--check"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
