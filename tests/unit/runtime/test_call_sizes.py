"""The sizes of calls: what the shapes of inputs determine, and manifests that say it wrongly."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from weft.runtime import Manifest, TargetSpec, TensorSpec
from weft.runtime.call_sizes import ADDRESSABLE, SizeOutOfRangeError, SizeSolver
from weft.runtime.manifest import KernelCall, SizeTest, SymbolSpec, VariantSpec
from weft.support.errors import ArtifactError, InvalidInputError


def manifest_of(symbols: tuple[SymbolSpec, ...], inputs: list[tuple[int | str, ...]],
                outputs: list[tuple[int | str, ...]], **others: Any) -> Manifest:
    specs = [[TensorSpec(f"{kind}{n}", "float32", shape) for n, shape in enumerate(shapes)]
             for kind, shapes in (("x", inputs), ("y", outputs))]
    return Manifest(inputs=tuple(specs[0]), outputs=tuple(specs[1]),
                    target=TargetSpec("x86_64", "any"), constants_bytes=0, symbols=symbols,
                    **{"arena_bytes": 0, **others})


AFFINE = st.tuples(st.integers(1, 5), st.integers(-4, 4))


@given(AFFINE, st.integers(0, 9), st.none() | st.integers(0, 9), st.integers(1, 4),
       st.integers(-10, 100))
def test_an_affine_axis_determines_its_symbol(
    affine: tuple[int, int], low: int, width: int | None, multiple: int, size: int
) -> None:
    scale, offset = affine
    high = None if width is None else low + width
    symbol = SymbolSpec("n", 0, 0, low, high, multiple, scale, offset)
    solver = SizeSolver(manifest_of((symbol,), [(f"{scale}*n + {offset}", 3), ("n*n",)],
                                    [("2*n", "n + 1")]))
    value, rest = divmod(size - offset, scale)
    fits = rest == 0 and value >= low and (high is None or value <= high) and value % multiple == 0
    shapes = ((size, 3), (value * value,))
    if not fits:
        with pytest.raises(InvalidInputError, match=r"'x0' cannot have size"):
            solver.solve(shapes)
        return
    sizes = solver.solve(shapes)
    assert sizes.symbols == {"n": value}
    assert sizes.values.tolist() == [value]
    assert sizes.outputs[0].shape == (2 * value, value + 1)
    with pytest.raises(InvalidInputError, match=r"'x1' cannot have size .*: n\*n is"):
        solver.solve(((size, 3), (value * value + 1,)))


@given(st.integers(0, 1 << 50), st.integers(0, 1 << 50))
def test_products_are_exact_or_refused(n: int, m: int) -> None:
    solver = SizeSolver(manifest_of(
        (SymbolSpec("n", 0, 0), SymbolSpec("m", 1, 0)), [("n",), ("m",)], [("n", "m")],
        sizes=(0, "4*n*m", "_0 + _1"), arena_bytes="_2"))
    if 4 * n * m >= ADDRESSABLE or max(n, m) >= ADDRESSABLE:
        with pytest.raises(InvalidInputError, match="more memory than there are addresses"):
            solver.solve(((n,), (m,)))
    else:
        assert solver.solve(((n,), (m,))).arena_bytes == 4 * n * m


def test_tensors_of_negative_sizes_are_refused() -> None:
    solver = SizeSolver(manifest_of((SymbolSpec("n", 0, 0),), [("n",)], [("n - 2", "n - 2")],
                                    nonnegative=("n - 4",)))
    assert solver.solve(((4,),)).outputs[0].shape == (2, 2)
    with pytest.raises(InvalidInputError, match="too small: n - 4 is -1"):
        solver.solve(((3,),))
    with pytest.raises(InvalidInputError, match="too small for output 'y0'"):
        solver.solve(((1,),))


def test_wrong_shapes_are_refused() -> None:
    solver = SizeSolver(manifest_of((SymbolSpec("n", 0, 0, 2, 8),), [("n", 3)], [("n",)]))
    for shapes, words in ((((3,),), "rank 1"), (((3, 4),), "fixed size of 3"), ((), "number"),
                          (((3, 3), (3,)), "number")):
        with pytest.raises(InvalidInputError, match=words):
            solver.solve(shapes)
    for size in (-1, 0, 1, 9, 1 << 70):
        with pytest.raises(SizeOutOfRangeError, match="from 2 to 8"):
            solver.solve(((size, 3),))


VARIANT = VariantSpec("k1", (("size", 0),), (SizeTest(1, 1, 4), SizeTest(2, 0, None, 2)),
                      "k.cpu.small", 1e-6)
GOOD = manifest_of(
    (SymbolSpec("n", 0, 0, 1, 9, 1, 2, 1),), [("2*n + 1",)], [("n",)], sizes=(0, "n", "_0 + 64*n"),
    arena_bytes="_2", states=(TensorSpec("s", "float32", (3,)),), nonnegative=("n - 1",),
    steps=(KernelCall("k", (("slot", 0), ("size", 1), ("state", 0)), flops="2*n",
                      variants=(VARIANT,)),))


def test_symbols_states_and_variants_round_trip() -> None:
    assert Manifest.from_json(GOOD.to_json()) == GOOD
    assert SizeSolver(GOOD).solve(((5,),)).arena_bytes == 128
    plain = replace(GOOD, sizes=(), arena_bytes=0, symbols=(), states=(), steps=(),
                    inputs=(), outputs=(), nonnegative=())
    assert "nonnegative" not in plain.to_json()


DAMAGE: list[Callable[[dict[str, Any]], object]] = [
    lambda m: m["symbols"][0].update(name="k"),
    lambda m: m["symbols"][0].update(name="_0"),
    lambda m: m["symbols"][0].update(name=3),
    lambda m: m["symbols"].append(m["symbols"][0]),
    lambda m: m["symbols"][0].update(input=1),
    lambda m: m["symbols"][0].update(input=-1),
    lambda m: m["symbols"][0].update(axis=1),
    lambda m: m["symbols"][0].update(axis=-1),
    lambda m: m["symbols"][0].update(scale=0),
    lambda m: m["symbols"][0].update(multiple=0),
    lambda m: m["symbols"][0].update(low=-1),
    lambda m: m["symbols"][0].update(low=None),
    lambda m: m["symbols"][0].update(high="9"),
    lambda m: m["symbols"][0].update(color=1),
    lambda m: m["symbols"][0].pop("scale") and m["symbols"][0].update(offset=1.5),
    lambda m: m.update(symbols=[]),
    lambda m: m.update(symbols=3),
    lambda m: m["sizes"].__setitem__(1, "_2"),
    lambda m: m["sizes"].__setitem__(1, "_1"),
    lambda m: m["sizes"].__setitem__(1, "k"),
    lambda m: m["sizes"].__setitem__(1, "__import__('os')"),
    lambda m: m["sizes"].__setitem__(1, "-" * 9000 + "n"),
    lambda m: m["sizes"].__setitem__(1, None),
    lambda m: m.update(arena_bytes="_3"),
    lambda m: m.update(arena_bytes="n.real"),
    lambda m: m["inputs"][0].update(shape=["k"]),
    lambda m: m["inputs"][0].update(shape=["exit()"]),
    lambda m: m["outputs"][0].update(shape=["_0"]),
    lambda m: m["nonnegative"].append("k"),
    lambda m: m["states"][0].update(shape=["n"]),
    lambda m: m["states"][0].update(shape=[-3]),
    lambda m: m["steps"][0].update(flops="k"),
    lambda m: m["steps"][0].update(bytes_moved="9 ** 9"),
    lambda m: m["steps"][0].update(args=[["slot", 3]]),
    lambda m: m["steps"][0].update(args=[["size", 3]]),
    lambda m: m["steps"][0].update(args=[["state", 1]]),
    lambda m: m["steps"][0]["variants"][0]["tests"][0].update(size=3),
    lambda m: m["steps"][0]["variants"][0]["tests"][0].update(size=-1),
    lambda m: m["steps"][0]["variants"][0]["tests"][1].update(multiple=0),
    lambda m: m["steps"][0]["variants"][0].update(seconds="1"),
    lambda m: m["steps"][0].update(seconds=-1.0),
    lambda m: m["steps"][0]["variants"][0].update(tests=[{}]),
    lambda m: m["steps"][0]["variants"][0].update(args=[["state", 1]]),
    lambda m: m["steps"][0]["variants"][0].update(kernel=None),
    lambda m: m["steps"][0]["variants"][0]["tests"][0].update(low="1"),
]


@pytest.mark.parametrize("change", DAMAGE, ids=range(len(DAMAGE)))
def test_damage_is_found(change: Callable[[dict[str, Any]], object]) -> None:
    plain = json.loads(GOOD.to_json())
    change(plain)
    with pytest.raises(ArtifactError):
        Manifest.from_json(json.dumps(plain))


@given(st.data())
def test_any_change_of_a_value_is_found_or_harmless(data: st.DataObject) -> None:
    """Manifests that are accepted give sizes, or a clear error, for shapes that they accept."""
    plain = json.loads(GOOD.to_json())
    key = data.draw(st.sampled_from(["symbols", "sizes", "arena_bytes", "nonnegative", "inputs"]))
    values = [-1, 0, 1, 1 << 70, None, "n", "_0*_0", "n - 99", "n//0", []]
    value = data.draw(st.sampled_from(values))
    target = plain[key]
    if isinstance(target, list) and target and isinstance(target[0], dict):
        target[0][data.draw(st.sampled_from(sorted(target[0])))] = value
    elif isinstance(target, list):
        target[data.draw(st.integers(0, len(target) - 1))] = value
    else:
        plain[key] = value
    try:
        manifest = Manifest.from_json(json.dumps(plain))
        assume(len(manifest.inputs[0].shape) == 1)
        sizes = SizeSolver(manifest).solve(((5,),))
    except (ArtifactError, InvalidInputError):
        return
    assert 0 <= sizes.arena_bytes < ADDRESSABLE
