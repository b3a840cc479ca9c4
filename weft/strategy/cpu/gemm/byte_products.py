"""How a CPU multiplies the bytes of quants by int8 data, exactly, and which bytes it takes.

x86-64 multiplies unsigned bytes by signed ones. Without VNNI neighbouring products are added in 16
bits: several steps fit if quants are short; those of 8 bits are kept as int16, as the data then is.
"""

from __future__ import annotations

from collections.abc import Callable

from weft.codegen import CPU_BACKEND
from weft.ir.dtype import DType, int32
from weft.support.dataclass import dataclass
from weft.target import CpuTarget
from weft.tir import Instruction, PrimExpr, Shuffle, const
from weft.tir.instruction import INSTRUCTIONS, call_of
from weft.topi.nn.block_formats import RUN
from weft.topi.nn.block_quantized import LEVELS

int8, int16, uint8 = (DType.of(name) for name in ("int8", "int16", "uint8"))
_LARGEST_SUM = 2 ** 15 - 1


@dataclass(frozen=True, slots=True)
class ByteProducts:
    """Sums of products of a register of stored quants by one of data.

    A quant is stored less ``base``. A lane of 32 bits holds ``group`` neighbours of a row: bytes,
    signed if ``is_signed``, or int16. ``dot`` adds their products to a lane. Without it, ``pairs``
    adds two in 16 bits, and ``widen`` two of these sums after every ``steps`` registers.
    """

    bits: int
    base: int
    is_signed: bool
    dot: Instruction | None = None
    group: int = 4
    pairs: Instruction | None = None
    widen: Instruction | None = None
    steps: int = 1

    @property
    def parts(self) -> int:
        """The parts of 128 bits of a register."""
        return self.bits // 128

    @property
    def rows(self) -> int:
        """Lanes of 32 bits: the rows of the weight that a register holds."""
        return self.bits // 32

    @property
    def data_dtype(self) -> DType:
        return int8 if self.group == 4 else int16

    @property
    def dtype(self) -> DType:
        """The dtype of stored quants."""
        return self.data_dtype if self.is_signed else uint8

    def instructions(self, elements: int) -> float:
        """Vector instructions of the products of neighbours of all rows, and of their sum."""
        registers = elements // self.group
        if self.dot is not None:
            return registers * (1 if self.group == 4 else 2)
        # Products; then all but the first of each chain are added.
        chains = -(-registers // self.steps)
        return registers * 2 - chains + 2 * chains

    def sums_of(self, registers: int) -> int:
        """How many registers hold the sum of so many products while it grows."""
        return 2 if self.dot is None and self.steps < registers else 1

    def stored(self, quants: PrimExpr) -> list[PrimExpr]:
        """The registers that are kept of quants, runs of 16 in each part of bytes that wrap."""
        moved = quants if self.base == 0 else quants - self.base % 256
        if not self.is_signed:
            return [moved]
        signed, width = moved.astype(int8), 4 * self.group
        return [self._widths(signed, start, width) for start in range(0, RUN, width)]

    def _widths(self, bytes_: PrimExpr, start: int, width: int) -> PrimExpr:
        """``width`` elements of each part from ``start`` on."""
        if width == RUN:
            return bytes_
        picks = (part * RUN + start + n for part in range(self.parts) for n in range(width))
        return Shuffle((bytes_,), tuple(picks)).astype(int16)

    def start(self) -> ProductSum:
        return ProductSum(self)


@dataclass(frozen=True, slots=True)
class ProductSum:
    """A sum that grows: ``total`` is int32, ``short`` holds up to ``steps`` sums of pairs."""

    products: ByteProducts
    total: PrimExpr | None = None
    short: PrimExpr | None = None
    count: int = 0

    def add(self, stored: PrimExpr, data: PrimExpr) -> ProductSum:
        """The sum with one more register of products."""
        of = self.products
        if of.dot is not None:
            return ProductSum(of, call_of(of.dot, (self._or_zero(), stored, data)))
        assert of.pairs is not None
        pair = call_of(of.pairs, (stored, data))
        if self.count == of.steps:
            return ProductSum(of, self._upcast(), pair, 1)
        short = pair if self.short is None else self.short + pair
        return ProductSum(of, self.total, short, self.count + 1)

    def held(self, name: Callable[[PrimExpr], PrimExpr]) -> ProductSum:
        """The same, with its values bound to variables."""
        total, short = (None if value is None else name(value)
                        for value in (self.total, self.short))
        return ProductSum(self.products, total, short, self.count)

    def result(self) -> PrimExpr:
        """All products, int32."""
        return self._or_zero() if self.short is None else self._upcast()

    def _or_zero(self) -> PrimExpr:
        return const(0, int32.vector(self.products.rows)) if self.total is None else self.total

    def _upcast(self) -> PrimExpr:
        assert self.products.widen is not None
        assert self.short is not None
        ones = const(1, int16.vector(2))
        return call_of(self.products.widen, (self._or_zero(), ones, self.short))


def byte_products(target: CpuTarget, low: int, high: int) -> ByteProducts | None:
    """The products of quants from ``low`` to ``high``; ``None`` if the CPU has no instruction."""
    bits, span = target.vector_bits, high - low
    signed_base = max(0, high - 127)
    dot = _supported(f"vpdpbusd_lanes_{bits}", target)
    if dot is not None:
        return ByteProducts(bits, low, False, dot)
    dot = _supported("sdot_lanes_128", target)
    if dot is not None:
        return ByteProducts(128, signed_base, True, dot)
    pairs, widen, wide = (_supported(f"{name}_{bits}", target)
                          for name in ("vpmaddubsw", "vpmaddwd", "vpmaddwd_lanes"))
    steps = _LARGEST_SUM // (2 * LEVELS * max(span, 1))
    if steps and pairs is not None and widen is not None:
        return ByteProducts(bits, low, False, pairs=pairs, widen=widen, steps=steps)
    return None if wide is None else ByteProducts(bits, signed_base, True, wide, group=2)


def _supported(name: str, target: CpuTarget) -> Instruction | None:
    known = CPU_BACKEND.tensor_instructions  # which registers all of them
    found = INSTRUCTIONS.find(name) if known else None
    return found if found is not None and found.runs_on(target.arch, target.features) else None
