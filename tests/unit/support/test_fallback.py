"""One record of what weft does instead: listed once, warned of once per log, refused by strict."""

import threading
import warnings

import pytest

import weft
from weft.support.errors import InvalidInputError, StrictError
from weft.support.fallback import (
    Fallback,
    FallbackLog,
    FallbackWarning,
    reason_of,
    recording,
    report,
    report_all,
)

ONE = Fallback("tanh runs on the CPU", "no code for float16", "two copies per call", "use float32")
TWO = Fallback("softmax runs on the CPU", "no code", "a copy", "use float32")
LISTED = Fallback("the virtual machine runs main", "it is recursive", "0.1 ms per call",
                 "write a loop", listed_only=True)


def test_the_warning_is_public_and_has_all_four_fields():
    with pytest.warns(weft.FallbackWarning) as caught:
        report(ONE)
    assert caught[0].message.fallback == ONE
    for field in (ONE.what, ONE.cause, ONE.cost, ONE.cure):
        assert field in str(caught[0].message)


def test_a_log_warns_once_per_cause_and_keeps_the_order():
    log = FallbackLog()
    with pytest.warns(FallbackWarning) as caught, recording(log):
        report_all([TWO, ONE, TWO, TWO])
    assert [w.message.fallback for w in caught] == [TWO, ONE]
    assert log.found == (TWO, ONE)


def test_another_log_warns_again():
    for _ in range(2):
        with pytest.warns(FallbackWarning), recording():
            report(ONE)


def test_a_log_is_part_of_the_one_around_it():
    outer = FallbackLog()
    with pytest.warns(FallbackWarning) as caught, recording(outer):
        inner = [_reported_inside() for _ in range(2)]
    assert len(caught) == 1
    assert [outer.found, *inner] == [(ONE,)] * 3


def _reported_inside():
    with recording() as log:
        report(ONE)
    return log.found


def test_what_is_listed_only_is_neither_warned_of_nor_refused():
    with recording(strict=True) as log:
        report(LISTED)
    assert log.found == (LISTED,)


def test_strict_refuses_with_the_same_fields():
    with recording(strict=True) as log, pytest.raises(StrictError) as refused:
        report(ONE)
    assert log.found == ()
    for field in (ONE.what, ONE.cause, ONE.cost, ONE.cure):
        assert field in str(refused.value)


def test_what_is_part_of_a_strict_log_is_strict():
    with recording(strict=True), recording(), pytest.raises(StrictError):
        report(ONE)


def test_a_log_of_a_module_is_bound_again_at_its_calls():
    log = FallbackLog()
    with pytest.warns(FallbackWarning), recording(log):
        report(ONE)
    with recording(log):
        report(ONE)  # not new, so without a warning
    assert log.counts == {ONE: 2}
    with recording(FallbackLog([TWO])) as known:
        report(TWO)
    assert known.found == (TWO,)


def test_threads_warn_once():
    log, told = FallbackLog(), []
    with warnings.catch_warnings():
        warnings.showwarning = lambda *args: told.append(args)
        warnings.simplefilter("always")
        threads = [threading.Thread(target=report, args=(ONE, log)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(told) == 1


def test_the_warning_names_the_line_of_the_user():
    with pytest.warns(FallbackWarning) as caught, recording():
        report(ONE)
    assert caught[0].filename == __file__


def test_a_cause_is_one_line():
    error = InvalidInputError("a shape\ndiffers", got="(2, 3)", where="line 5", help="no")
    assert reason_of(error) == "a shape differs (got (2, 3)), at line 5"
    assert reason_of(ValueError("a\nb")) == "ValueError: a b"
