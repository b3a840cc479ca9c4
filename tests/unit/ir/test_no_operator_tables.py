"""No module far from the records holds a table of facts about operators.

A literal with three or more names of operators is such a table. What it says is a field, a trait or
a hook of the operators.
"""

import ast
from pathlib import Path

import pytest

import weft
import weft.op
from weft.ir.op import OPS

ROOT = Path(weft.__file__).parent
# Converters map the names of other formats to operators, and writers (``export``) operators to
# those; below ``op`` there are other name spaces: intrinsics of tir, instructions of PTX and LLVM.
# ``compat`` translates TensorFlow and NNVM.
OTHER_NAMES = ("op", "topi", "te", "tir", "codegen", "testing", "frontend", "export", "compat")
EXCEPTIONS = {
    "cli/operator_uses.py": "Python's operators in the bytecode of composites, which are syntax",
    "__init__.py": "public names, some of which equal those of operators",
    "distributed/communicator/base.py": "names of the reductions of collectives",
    "distributed/communicator/gloo.py": "torch's names of reductions",
    "distributed/communicator/mpi.py": "MPI's names of reductions",
    "eager/functions/masked.py": "functions of torch.masked, by its names",
    "eager/functions/scattering.py": "torch's names of reductions",
    "ir/python/builder.py": "Python's operators on expressions, which are syntax",
    "array_api/__init__.py": "names of the array API standard",
    "eager/functions/elementwise.py": "what torch computes for booleans",
    "masked/__init__.py": "names of torch.masked",
    "nn/functional/__init__.py": "names of torch.nn.functional",
    "nn/functional/embedding.py": "torch's names of reductions",
    "special/__init__.py": "names of torch.special",
    "transform/autodiff/reverse/lazy_gradient_init.py": "rules: the left side is one operator",
    "transform/rules/scale.py": "rules: the left side is one operator",
}


def tables_in(tree, names):
    """Lines of literals with three names of operators, and these names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict):
            parts = [*node.keys, *node.values]
        elif isinstance(node, ast.Set | ast.List | ast.Tuple):
            parts = node.elts
        else:
            continue
        found = {n for part in parts for n in _words(part) if n in names}
        if len(found) >= 3:
            yield node.lineno, sorted(found)


def _words(part):
    """A string, the words of a text, or the strings of a row."""
    if isinstance(part, ast.Constant) and isinstance(part.value, str):
        return part.value.split()
    return [w for e in part.elts for w in _words(e)] if isinstance(part, ast.Tuple) else []


def modules():
    for path in sorted(ROOT.rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        if name.split("/")[0] not in OTHER_NAMES:
            yield name, path


def test_facts_about_operators_stand_in_their_records():
    names = set(OPS)
    found = {}
    for name, path in modules():
        tables = list(tables_in(ast.parse(path.read_text(encoding="utf-8")), names))
        if tables:
            found[name] = tables
    new = {name: tables for name, tables in found.items() if name not in EXCEPTIONS}
    assert not new, "state these facts as traits or hooks of the operators"
    assert set(EXCEPTIONS) <= set(found), "an exception that is none any more"


@pytest.mark.parametrize("text", [
    'TABLE = {"add": 1, "nn.softmax": 2, "transpose": 3}',
    'NAMES = frozenset(("add", "nn.softmax", "transpose"))',
    'ROWS = [("add", 1), ("nn.softmax", 2), ("transpose", 3)]',
    'WORDS = ["add nn.softmax", "transpose"]',
])
def test_a_table_is_found(text):
    (table,) = tables_in(ast.parse(text), {"add", "nn.softmax", "transpose"})
    assert table == (1, ["add", "nn.softmax", "transpose"])
