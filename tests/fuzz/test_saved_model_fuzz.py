"""Damaged SavedModels and GraphDefs: an error of weft's family, or a module."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.fuzz.mutate import mutate_bytes
from tests.fuzz.test_other_formats_fuzz import is_refused
from tests.unit.compat.graphdef.saved_models import save
from tests.unit.compat.graphdef.test_saved_model import LIBRARY, NODES, SIGNATURES, VALUES
from weft.compat.graphdef import (
    GraphDef,
    GraphDefModel,
    from_graphdef,
    graph_def_bytes,
    parse_graph_def,
)

SEEDS_PER_ROUND = 40
FILES = ("saved_model.pb", "variables/variables.index", "variables/variables.data-00000-of-00001")


def read(folder: Path) -> None:
    GraphDefModel.of_signature(folder, "serving_default").to_module()


def damage(folder: Path, name: str, number: int) -> int:
    """How many of the damaged files are refused."""
    path, refused = folder / name, 0
    data = path.read_bytes()
    for seed in range(number * SEEDS_PER_ROUND, (number + 1) * SEEDS_PER_ROUND):
        path.write_bytes(mutate_bytes(data, random.Random(f"{name}/{seed}")))
        try:
            refused += is_refused(read, folder)
        except Exception as error:
            error.add_note(f"seed: {name}/{seed}")
            raise
    return refused


@pytest.mark.sample(0.2)
@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize("name", FILES)
def test_damaged_saved_model(name: str, number: int, tmp_path: Path) -> None:
    folder = save(tmp_path / "net", GraphDef(NODES, library=LIBRARY), SIGNATURES, VALUES)
    read(folder)
    assert damage(folder, name, number)


@pytest.mark.sample(0.2)
@pytest.mark.parametrize("number", range(4))
def test_damaged_graphdef(number: int) -> None:
    data, refused = graph_def_bytes(GraphDef(NODES[4:5] + NODES[:3], library=LIBRARY)), 0
    for seed in range(number * SEEDS_PER_ROUND, (number + 1) * SEEDS_PER_ROUND):
        damaged = mutate_bytes(data, random.Random(f"graphdef/{seed}"))
        try:
            refused += is_refused(lambda model: from_graphdef(parse_graph_def(model)), damaged)
        except Exception as error:
            error.add_note(f"seed: graphdef/{seed}")
            raise
    assert refused
