"""For all tests: a sample of long tables, and of the modules that tests make, through files."""

from __future__ import annotations

import gc
import os
import re
import shutil
import signal
import tempfile
from collections import defaultdict
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests import sampling
from tests.round_trip import Sampler, watching

# Of a long table of cases the fast tests run so many, spread over it.
SAMPLE = 8
# Of a table marked ``sample`` a run takes so many cases at least.
FEWEST = 3
# Of all tests, modules of so many go through files, and so many compile with a verifier after
# every pass.
ROUND_TRIPS = VERIFIED = 0.1
# Of all tests so many build kernels in several processes, each of which imports the compiler; the
# others leave the other CPUs to other tests.
IN_PROCESSES = 0.05
# So many new objects start a collection.
YOUNG_OBJECTS = 20_000

_OF_TORCH = re.compile(r"^pytestmark = (?:\[[^\]]*|.*)\bmark\.torch\b", re.MULTILINE)
_OWN_CACHE = pytest.StashKey[str]()

# On a CPU that no table describes the tests decide by the nearest table, not by a measurement.
os.environ.setdefault("WEFT_CALIBRATE", "0")

# The same examples in each run: a failure is then that of a change. ``WEFT_FUZZ_EXAMPLES`` asks for
# new ones.
# Nothing is judged by its time, which on a busy machine says nothing.
settings.register_profile("repeatable", derandomize="WEFT_FUZZ_EXAMPLES" not in os.environ,
                          deadline=None)
settings.load_profile("repeatable")


def pytest_configure(config: pytest.Config) -> None:
    """Before worker processes start, which inherit what is set here."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in jobs of a shell's background
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if names_tests(config):
        os.environ.setdefault(sampling.SHARE, "1")
    sampling.seed()
    if config.getoption("numprocesses", default=None):
        # A thread that waits, of weft or of torch, does not keep another process from working.
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    if "WEFT_CACHE_DIR" not in os.environ:
        # One store for the run and all of its processes; no earlier run has filled it.
        config.stash[_OWN_CACHE] = tempfile.mkdtemp(prefix="weft-tests-")
        os.environ["WEFT_CACHE_DIR"] = config.stash[_OWN_CACHE]


def pytest_unconfigure(config: pytest.Config) -> None:
    if _OWN_CACHE in config.stash:
        shutil.rmtree(config.stash[_OWN_CACHE], ignore_errors=True)
        os.environ.pop("WEFT_CACHE_DIR", None)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect no garbage here, nor later among what was made here: it is most of all objects.

    Later, too, collections are rarer than those of a small program.
    """
    gc.disable()
    gc.set_threshold(YOUNG_OBJECTS, *gc.get_threshold()[1:])
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def names_tests(config: pytest.Config) -> bool:
    """Whether the command line names files or tests, and not only folders."""
    named = any(".py" in argument for argument in config.invocation_params.args)
    return named or any(config.getoption(name, default=None) for name in ("keyword", "lf", "ff"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not sampling.is_whole():
        terminalreporter.write_line(
            f"a sample of long tables: {sampling.SEED}={sampling.seed()} draws it, "
            f"{sampling.SHARE}=1 takes everything")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave files aside, without importing them, that have no test of the marks asked for."""
    marks = config.option.markexpr
    if collection_path.suffix != ".py" or "torch" not in marks:
        return None
    text = collection_path.read_text(encoding="utf-8")
    if "not torch" in marks:
        return True if _OF_TORCH.search(text) else None
    return None if "mark.torch" in text else True


@pytest.hookimpl(tryfirst=True)  # before cases are selected by their marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark most cases of long tables ``slow``, so that ``make test-fast`` takes a sample."""
    tables: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        tables[item.nodeid.partition("[")[0]].append(item)
    for cases in tables.values():
        step = -(-len(cases) // SAMPLE)
        for number, item in enumerate(cases):
            if number % step:
                item.add_marker(pytest.mark.slow)
    draw_tables(config, tables, items)


def draw_tables(config: pytest.Config, tables: dict[str, list[pytest.Item]],
                items: list[pytest.Item]) -> None:
    """Keep of each table marked ``sample(share, least)`` that share, and at least so many."""
    left: set[int] = set()
    for name, cases in tables.items():
        mark = cases[0].get_closest_marker("sample")
        if mark is not None:
            share, least = (*mark.args, FEWEST)[:2]
            kept = set(map(id, sampling.sampled(name, cases, share, least, node_id)))
            left |= {id(case) for case in cases} - kept
    config.hook.pytest_deselected(items=[item for item in items if id(item) in left])
    items[:] = [item for item in items if id(item) not in left]


@pytest.hookimpl(specname="pytest_collection_modifyitems", trylast=True)
def pytest_draw_a_number(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep so many tests as ``WEFT_TEST_COUNT`` says, after the others have selected."""
    count = os.environ.get("WEFT_TEST_COUNT")
    if count is not None:
        drawn = sampling.drawn("number", items, int(count), node_id)
        kept = set(map(id, drawn))
        config.hook.pytest_deselected(items=[item for item in items if id(item) not in kept])
        items[:] = drawn


def node_id(item: pytest.Item) -> str:
    return item.nodeid


@pytest.fixture
def round_trip_sampler(request: pytest.FixtureRequest) -> Sampler | None:
    """Which modules are checked, if any are; the tests of the language itself check more."""
    return Sampler() if sampling.is_drawn(f"files/{request.node.nodeid}", ROUND_TRIPS) else None


@pytest.fixture(autouse=True)
def round_trip(round_trip_sampler: Sampler | None) -> Iterator[None]:
    if round_trip_sampler is None:
        yield
        return
    with watching(round_trip_sampler):
        yield
    if round_trip_sampler.failures:
        raise round_trip_sampler.failures[0]


@pytest.fixture(scope="session", autouse=True)
def one_builder() -> Iterator[bool]:
    """Whether tests build kernels in one process, as they do where nothing else is asked for."""
    if "WEFT_BUILD_JOBS" in os.environ or sampling.is_whole():
        yield False
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WEFT_BUILD_JOBS", "1")
        yield True


@pytest.fixture(autouse=True)
def drawn_settings(request: pytest.FixtureRequest, one_builder: bool) -> Iterator[None]:
    """Settings of a share of the tests, where nothing else is asked for.

    Some verify programs after every pass, some build kernels in several processes.
    """
    name = request.node.nodeid
    is_verified = "WEFT_VERIFY" not in os.environ and sampling.is_drawn(name, VERIFIED)
    has_builders = one_builder and sampling.is_drawn(f"processes/{name}", IN_PROCESSES)
    if not (is_verified or has_builders):
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        if is_verified:
            patch.setenv("WEFT_VERIFY", "2")
        if has_builders:
            patch.delenv("WEFT_BUILD_JOBS")
        yield


@pytest.fixture
def unfrozen() -> Iterator[None]:
    """Garbage is collected among all objects, as in a program that froze none."""
    gc.unfreeze()
    yield
    gc.freeze()


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of kept code for this test alone."""
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def cache_of_module(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder of kept code for the tests of one file."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WEFT_CACHE_DIR", str(folder))
        yield folder


@pytest.fixture(scope="module")
def verified_once() -> Iterator[None]:
    """Programs of this file are verified at the ends of phases and started from the cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WEFT_VERIFY", "1")
        yield
