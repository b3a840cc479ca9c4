"""Data races: two threads, one memory location, at least one write, and no barrier between.

Each unit of a region remembers its last write and its reads as packed words

    block + 1 (22 bits) | clock (16) | thread (11) | site (14)

A clock counts the barriers that a thread has passed. A barrier orders what came before: an access
races with an earlier one by another thread of its block if the clock of the earlier one has reached
``base``, the clock at the last barrier of the later thread; blocks are never ordered. Reads by
several threads keep one word with the thread (or the block) "any". Regions that a kernel only reads
are not tracked until the first write: their reads are kept in a log.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

SITE_BITS, THREAD_BITS, CLOCK_BITS, BLOCK_BITS = 14, 11, 16, 22
CLOCK_SHIFT = SITE_BITS + THREAD_BITS
BLOCK_SHIFT = CLOCK_SHIFT + CLOCK_BITS
ANY_THREAD = (1 << THREAD_BITS) - 1
ANY_BLOCK = (1 << BLOCK_BITS) - 1
CLOCK_LIMIT = (1 << CLOCK_BITS) - 16
_LOG_LIMIT = 1 << 22

Report = Callable[[int, int, int, bool], None]


class Accessor:
    """The threads of an access: their packed words and base clocks, one entry per lane.

    ``now`` is the time of the access, ``floor`` the time of the last barrier that every running
    thread has passed. ``warps`` says whether warps passed barriers of their own.
    """

    __slots__ = ("base", "fenced", "floor", "now", "warps", "words")

    def __init__(
        self, words: np.ndarray, base: np.ndarray, fenced: np.ndarray | None, warps: bool,
        now: int, floor: int,
    ) -> None:
        self.words = words
        self.base = base
        self.fenced = fenced
        self.warps = warps
        self.now = now
        self.floor = floor

    def of(self, lanes: np.ndarray) -> Accessor:
        """Some of the lanes, by position or by a mask."""
        fenced = None if self.fenced is None else self.fenced[lanes]
        return Accessor(self.words[lanes], self.base[lanes], fenced, self.warps, self.now,
                        self.floor)


class Shadow:
    """What the threads of one launch did to one region."""

    def __init__(self, nbytes: int, unit: int, private: bool) -> None:
        self.nbytes = nbytes
        self.unit = unit
        # Blocks do not share the region, so what every thread's last barrier orders is settled.
        self.private = private
        self.last_write = 0
        self.last_read = 0
        self.writes: np.ndarray | None = None
        self.reads: np.ndarray | None = None
        self.log: list[tuple[np.ndarray, int, Accessor, int]] = []
        self.logged = 0

    def read(self, offsets: np.ndarray, nbytes: int, who: Accessor, site: int,
             report: Report, late: bool = False) -> None:
        """Check and remember a read of ``nbytes`` at each offset.

        ``late`` reads happened some time ago: writes after a barrier since then do not matter.
        """
        if self.private or self.writes is None:
            self.log.append((offsets, nbytes, who, site))
            self.logged += who.words.shape[0]
            if self.logged > _LOG_LIMIT:
                self._replay(who.floor)
        if self.writes is None or (self.private and self.last_write < who.floor):
            return
        units, words, base, fenced = self._units(offsets, nbytes, who)
        prior = self.writes[units]
        if late:
            clocks = ((1 << CLOCK_BITS) - 1) << CLOCK_SHIFT
            prior = np.where((prior & clocks) > (words & clocks), 0, prior)
        self._conflict(prior, words, base, fenced, who.warps, report, site, False)
        if not self.private:
            self._remember(units, words | site)

    def write(self, offsets: np.ndarray, nbytes: int, who: Accessor, site: int,
              report: Report) -> None:
        """Check and remember a write of ``nbytes`` at each offset."""
        self._replay(who.floor)
        if self.writes is None:
            self.writes = np.zeros(-(-self.nbytes // self.unit), dtype=np.int64)
        units, words, base, fenced = self._units(offsets, nbytes, who)
        settled = who.floor if self.private else 0
        if self.last_write >= settled:
            self._conflict(self.writes[units], words, base, fenced, who.warps, report, site, True)
        if self.reads is not None and self.last_read >= settled:
            self._conflict(self.reads[units], words, base, fenced, who.warps, report, site, True)
        self.last_write = max(self.last_write, who.now)
        mine = words | site
        self.writes[units] = mine
        kept = self.writes[units]
        if (kept != mine).any():  # two lanes of one instruction wrote here
            self._conflict(kept, words, base, None, False, report, site, True)

    def _replay(self, floor: int) -> None:
        """Remember the reads of the log, but those that a barrier of all threads settled."""
        if not self.log:
            return
        log, self.log, self.logged = self.log, [], 0
        for offsets, nbytes, who, site in log:
            if self.private and who.now < floor:
                continue
            self.last_read = max(self.last_read, who.now)
            units, words, _, _ = self._units(offsets, nbytes, who)
            self._remember(units, words | site)

    def _units(
        self, offsets: np.ndarray, nbytes: int, who: Accessor
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None]:
        if nbytes < self.unit:
            self._refine(nbytes)
        words, base, fenced = who.words, who.base, who.fenced
        if offsets.shape[0] == 1 and words.shape[0] > 1:
            ends = [0, -1]  # two of the lanes that share the address stand for all
            words, base = words[ends], base[ends]
            fenced = None if fenced is None else fenced[ends]
            offsets = np.repeat(offsets, 2)
        units = offsets // self.unit
        count = nbytes // self.unit
        if count > 1:
            units = (units[:, None] + np.arange(count)).ravel()
            words, base = np.repeat(words, count), np.repeat(base, count)
            fenced = None if fenced is None else np.repeat(fenced, count)
        return units, words, base, fenced

    def _refine(self, unit: int) -> None:
        factor = self.unit // unit
        count = -(-self.nbytes // unit)
        if self.writes is not None:
            self.writes = np.repeat(self.writes, factor)[:count]
        if self.reads is not None:
            self.reads = np.repeat(self.reads, factor)[:count]
        self.unit = unit

    def _remember(self, units: np.ndarray, mine: np.ndarray) -> None:
        if self.reads is None:
            self.reads = np.zeros(-(-self.nbytes // self.unit), dtype=np.int64)
        merged = _merge(self.reads[units], mine)
        self.reads[units] = merged
        kept = self.reads[units]
        other = kept != merged
        if other.any():
            units, merged = units[other], _merge(kept[other], merged[other])
            self.reads[units] = merged
            every = (merged >> BLOCK_SHIFT) == ANY_BLOCK
            self.reads[units[every]] = merged[every]

    def _conflict(
        self, prior: np.ndarray, words: np.ndarray, base: np.ndarray, fenced: np.ndarray | None,
        warps: bool, report: Report, site: int, write: bool,
    ) -> None:
        if not prior.any():
            return
        difference = (prior ^ words) >> SITE_BITS
        suspects = (difference != 0) & (prior != 0)
        if not suspects.any():
            return
        other_block = (difference >> (BLOCK_SHIFT - SITE_BITS)) != 0
        other_thread = (difference & ANY_THREAD) != 0
        clock = (prior >> CLOCK_SHIFT) & ((1 << CLOCK_BITS) - 1)
        if warps:  # threads of one warp are also ordered by its own barriers
            same_warp = ((difference & ANY_THREAD) >> 5) == 0
            base = np.where(same_warp, (words >> CLOCK_SHIFT) & ((1 << CLOCK_BITS) - 1), base)
        cross = other_block if fenced is None else other_block & ~fenced
        bad = suspects & (cross | (~other_block & other_thread & (clock >= base)))
        if bad.any():
            at = int(np.flatnonzero(bad)[0])
            report(int(words[at]), int(prior[at]), site, write)


def _merge(old: np.ndarray, new: np.ndarray) -> np.ndarray:
    """One word for two reads: the newer one, "any thread" or "any block"."""
    if not old.any():
        return new
    difference = old ^ new
    other_block = (difference >> BLOCK_SHIFT) != 0
    same_clock = (difference >> CLOCK_SHIFT) == 0
    other_thread = ((difference >> SITE_BITS) & ANY_THREAD) != 0
    thread = np.int64(ANY_THREAD << SITE_BITS)
    result = np.where(same_clock & other_thread, new | thread, new)
    result = np.where(other_block, new | thread | np.int64(ANY_BLOCK << BLOCK_SHIFT), result)
    return np.where(old == 0, new, result)


def describe_word(word: int) -> tuple[str, str, int]:
    """Block, thread and site of a packed word."""
    block = word >> BLOCK_SHIFT
    thread = (word >> SITE_BITS) & ANY_THREAD
    return (
        "several" if block == ANY_BLOCK else str(block - 1),
        "several" if thread == ANY_THREAD else str(thread),
        word & ((1 << SITE_BITS) - 1),
    )
