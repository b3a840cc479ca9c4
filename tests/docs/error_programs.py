"""The programs of the pages of error codes, each in a process of its own: what they raise.

``python -m tests.docs.error_programs`` prints ``{code: [class, code, message]}`` as JSON, with
``null`` where a program raises no ``WeftError``.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
import traceback

import weft
from weft.cli.explain import error_pages
from weft.support.errors import WeftError


def program_of(page: str) -> str | None:
    found = re.search(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    return found and found[1]


def message_of(page: str) -> str:
    found = re.search(r"^```text\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    return found[1] if found else ""


def raised_by(program: str) -> list[str] | None:
    """Run a program in a child, which keeps the operators that it registers."""
    readable, writable = os.pipe()
    child = os.fork()
    if child == 0:
        with os.fdopen(writable, "w") as out:
            json.dump(_raised_here(program), out)
        os._exit(0)
    os.close(writable)
    with os.fdopen(readable) as answer:
        text = answer.read()
    os.waitpid(child, 0)
    return json.loads(text)


def _raised_here(program: str) -> list[str] | None:
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            exec(compile(program, "<page>", "exec"), {"__name__": "page"})
        except WeftError as error:
            return [type(error).__name__, error.code, str(error)]
        except Exception:  # noqa: BLE001 - a page that has gone stale
            traceback.print_exc()
    return None


def load_what_most_need() -> None:
    """Once, before children are made."""
    import onnx  # noqa: F401

    weft.compile(weft.parse("def @main(%x: Tensor[(3), float32]) { exp(%x) }"))
    weft.ones(1).numpy()


if __name__ == "__main__":
    load_what_most_need()
    programs = {code: program_of(page) for code, page in error_pages().items()}
    print(json.dumps({c: raised_by(p) for c, p in programs.items() if p is not None}))
