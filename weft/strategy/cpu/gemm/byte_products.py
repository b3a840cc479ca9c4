"""How a CPU multiplies the bytes of quants by int8 data, exactly, and which bytes it takes.

x86-64 multiplies unsigned bytes by signed ones. Without VNNI neighbouring products are added in 16
bits: several steps fit if quants are short; those of 8 bits give their sign to the data.
"""

from __future__ import annotations

from collections.abc import Callable

from weft import te
from weft.codegen import CPU_BACKEND
from weft.ir.dtype import DType, int32
from weft.support.dataclass import dataclass
from weft.target import CpuTarget
from weft.tir import Instruction, PrimExpr, const
from weft.tir.instruction import INSTRUCTIONS, call_of
from weft.topi.nn.block_quantized import LEVELS

int8, int16, uint8 = (DType.of(name) for name in ("int8", "int16", "uint8"))
_LARGEST_SUM = 2 ** 15 - 1


@dataclass(frozen=True, slots=True)
class ByteProducts:
    """Sums of products of a register of stored quants by one of int8 data.

    A quant is stored less ``base``, as int8 if ``is_signed``. ``dot`` adds four products to a lane
    of 32 bits. Without it, ``pairs`` adds two in 16 bits, and ``widen`` two of these sums after
    every ``steps`` registers; ``sign`` moves the sign of signed quants to the data.
    """

    bits: int
    base: int
    is_signed: bool
    dot: Instruction | None = None
    pairs: Instruction | None = None
    widen: Instruction | None = None
    sign: Instruction | None = None
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
    def dtype(self) -> DType:
        """The dtype of stored quants."""
        return int8 if self.is_signed else uint8

    def instructions(self, registers: int) -> float:
        """Vector instructions of the products of some registers, and of their sum."""
        if self.dot is not None:
            return registers
        # Products and their signs; then all but the first of each chain are added.
        chains = -(-registers // self.steps)
        return registers * (2 + self.is_signed) - chains + 2 * chains

    def sums_of(self, registers: int) -> int:
        """How many registers hold the sum of so many products while it grows."""
        return 2 if self.dot is None and 1 < self.steps < registers else 1

    def stored(self, quant: PrimExpr) -> PrimExpr:
        """The bytes that are kept of quants, which are given as bytes that wrap."""
        moved = quant if self.base == 0 else quant - self.base % 256
        return moved.astype(int8) if self.is_signed else moved

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
        if of.is_signed:
            stored, data = _with_sign_of(of, stored, stored), _with_sign_of(of, data, stored)
        pair = call_of(of.pairs, (stored.astype(uint8), data))
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


def _with_sign_of(of: ByteProducts, value: PrimExpr, sign: PrimExpr) -> PrimExpr:
    if of.sign is not None:
        return call_of(of.sign, (value, sign))
    return te.select(sign < 0, const(0, value.dtype) - value, value)


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
    pairs, widen = (_supported(f"{name}_{bits}", target) for name in ("vpmaddubsw", "vpmaddwd"))
    if pairs is None or widen is None:
        return None
    steps = _LARGEST_SUM // (2 * LEVELS * max(span, 1))
    if steps:
        return ByteProducts(bits, low, False, pairs=pairs, widen=widen, steps=steps)
    sign = _supported(f"vpsignb_{bits}", target)
    return ByteProducts(bits, signed_base, True, pairs=pairs, widen=widen, sign=sign)


def _supported(name: str, target: CpuTarget) -> Instruction | None:
    known = CPU_BACKEND.tensor_instructions  # which registers all of them
    found = INSTRUCTIONS.find(name) if known else None
    return found if found is not None and found.runs_on(target.arch, target.features) else None
