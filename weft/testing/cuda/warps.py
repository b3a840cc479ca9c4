"""Exchange between the threads of a warp: ``shfl``, ``vote``, ``match``, ``redux``, ``elect``."""

from __future__ import annotations

import numpy as np

from weft.testing.cuda.batch import WARP
from weft.testing.cuda.lanes import Lanes

Array = np.ndarray
_POISON = np.uint32(0xFFFFFFFF)


def _here(x: Lanes, guard: Array | None) -> Array:
    """Which lanes of the batch run the instruction, as (warps, 32)."""
    active = x.active(guard)
    here = np.zeros(x.batch.lanes, dtype=bool)
    here[x.slots if active is None else x.slots[active]] = True
    return here.reshape(-1, WARP)


def spread(x: Lanes, value: Array, fill: int = 0) -> Array:
    """A value of the active lanes as an array over the batch, (warps, 32)."""
    if x.index is None:
        return np.broadcast_to(value, (x.batch.lanes,)).reshape(-1, WARP)
    full = np.full(x.batch.lanes, fill, dtype=value.dtype)
    full[x.index] = value
    return full.reshape(-1, WARP)


def own(x: Lanes, full: Array) -> Array:
    """The entries of the active lanes of an array over the batch."""
    flat = np.ascontiguousarray(full).reshape(-1)
    return flat if x.index is None else flat[x.index]


def _members(x: Lanes, mask: Array, here: Array, site: int) -> Array:
    """The threads that ``mask`` names, as (warps, 32) of booleans; they must all be here."""
    full = spread(x, np.broadcast_to(mask, (x.count,)))
    bits = (full[:, :, None] >> np.arange(WARP, dtype=np.uint32)) & 1 != 0
    named = np.where(here[:, :, None], bits, False)
    live = x.batch.live
    alive = np.ones(x.batch.lanes, dtype=bool) if live is None else live
    missing = named & ~here[:, None, :] & alive.reshape(-1, WARP)[:, None, :]
    if missing.any():
        warp, lane, other = (int(part[0]) for part in np.nonzero(missing))
        x.fail("a thread of the member mask is elsewhere", site, warp * WARP + lane,
               got=f"lane {other} of the mask does not run this instruction")
    own_bit = np.eye(WARP, dtype=bool)[None]
    absent = here & ~(named & own_bit).any(axis=2)
    if absent.any():
        warp, lane = (int(part[0]) for part in np.nonzero(absent))
        x.fail("a thread is not in its own member mask", site, warp * WARP + lane)
    return named


def shuffle(
    x: Lanes, mode: str, value: Array, lane: Array, bound: Array, mask: Array,
    guard: Array | None, site: int,
) -> tuple[Array, Array]:
    """``shfl.sync``: the value of another lane, and whether that lane is in range."""
    here = _here(x, guard)
    if not (mask.shape[0] == 1 and mask[0] == _POISON and here.all()):
        _members(x, mask, here, site)
    source = spread(x, value)
    step, limit = spread(x, lane) & np.uint32(31), spread(x, bound)
    me = np.arange(WARP, dtype=np.int64)[None, :]
    segment = ((limit >> np.uint32(8)) & np.uint32(31)).astype(np.int64)
    clamp = (limit & np.uint32(31)).astype(np.int64)
    highest = (me & segment) | (clamp & ~segment & 31)
    lowest = me & segment
    distance = step.astype(np.int64)
    match mode:
        case "up":
            target = me - distance
            valid = target >= highest
        case "down":
            target = me + distance
            valid = target <= highest
        case "bfly":
            target = me ^ distance
            valid = target <= highest
        case _:
            target = lowest | (distance & ~segment & 31)
            valid = target <= highest
    target = np.where(valid, target, me)
    taken = np.take_along_axis(source, target, axis=1)
    away = ~np.take_along_axis(here, target, axis=1)
    if away.any():  # the value of a thread that does not take part is undefined
        taken = np.where(away, _POISON, taken)
    return own(x, taken), own(x, np.broadcast_to(valid, taken.shape))


def vote(
    x: Lanes, mode: str, predicate: Array, mask: Array, guard: Array | None, site: int
) -> Array:
    """``vote.sync``: all, any, uni (booleans), ballot (uint32)."""
    here = _here(x, guard)
    named = _members(x, mask, here, site)
    full = spread(x, predicate)[:, None, :]
    alive = named & here[:, None, :]
    some = np.logical_or.reduce(alive & full, axis=2)
    every = np.logical_and.reduce(~alive | full, axis=2)
    match mode:
        case "any":
            return own(x, some)
        case "all":
            return own(x, every)
        case "uni":
            return own(x, every | ~some)
    return own(x, _bits(alive & full))


def _bits(flags: Array) -> Array:
    weights = np.uint32(1) << np.arange(WARP, dtype=np.uint32)
    return (flags * weights).sum(axis=-1).astype(np.uint32)


def active_mask(x: Lanes, guard: Array | None) -> Array:
    """``activemask``."""
    here = _here(x, guard)
    return own(x, np.repeat(_bits(here)[:, None], WARP, axis=1))


def match(
    x: Lanes, mode: str, value: Array, mask: Array, guard: Array | None, site: int
) -> tuple[Array, Array]:
    """``match.any`` and ``match.all``: the mask of equal values, and whether all are equal."""
    here = _here(x, guard)
    named = _members(x, mask, here, site)
    full = spread(x, value)
    same = named & here[:, None, :] & (full[:, :, None] == full[:, None, :])
    every = (same == (named & here[:, None, :])).all(axis=2)
    if mode == "any":
        return own(x, _bits(same)), own(x, every)
    return own(x, np.where(every, _bits(same), np.uint32(0))), own(x, every)


_REDUCTIONS = {"add": np.add, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and,
               "or": np.bitwise_or, "xor": np.bitwise_xor}


def reduce(
    x: Lanes, operation: str, value: Array, mask: Array, guard: Array | None, site: int
) -> Array:
    """``redux.sync``: every thread gets the reduction over the threads of the mask."""
    here = _here(x, guard)
    named = _members(x, mask, here, site) & here[:, None, :]
    full = np.broadcast_to(spread(x, value)[:, None, :], named.shape)
    info = np.iinfo(value.dtype)
    neutral = {"add": 0, "or": 0, "xor": 0, "and": -1 if info.min < 0 else info.max,
               "min": info.max, "max": info.min}[operation]
    terms = np.where(named, full, value.dtype.type(neutral))
    return own(x, _REDUCTIONS[operation].reduce(terms, axis=2).astype(value.dtype))


def elect(x: Lanes, mask: Array, guard: Array | None, site: int) -> tuple[Array, Array]:
    """``elect.sync``: the lowest lane of the mask, and whether it is the thread itself."""
    here = _here(x, guard)
    named = _members(x, mask, here, site) & here[:, None, :]
    leader = np.argmax(named, axis=2)
    return own(x, leader.astype(np.uint32)), own(x, leader == np.arange(WARP)[None, :])


def warp_sync(x: Lanes, mask: Array, guard: Array | None, site: int) -> None:
    """``bar.warp.sync``: orders the accesses of the threads of a warp."""
    here = _here(x, guard)
    _members(x, mask, here, site)
    x.batch.synchronise_warps(np.flatnonzero(here.any(axis=1)))
    x.forget_order()
