"""The blocking of a Winograd convolution into tasks and register tiles, and its estimate.

The estimate is in cycles of one core: the matrix multiplications in the transform domain, at the
rate of their register tile; the input and output transforms, a fixed number of vector instructions
for each tile and vector of channels; and the traffic beyond L2. The filter transform is not
counted: the weights are constants, transformed when the model is compiled.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

from weft.ir.dtype import DType
from weft.strategy.cpu.common.blocking import registers
from weft.strategy.cpu.common.register_tile import RegisterTile
from weft.strategy.cpu.machine_model import imbalance, machine_model
from weft.strategy.space import divisors_up_to
from weft.support.dataclass import dataclass
from weft.target import CpuTarget
from weft.topi.nn.winograd import TAPS

# Tile columns of a register tile if their number is symbolic: the tail has as many versions.
MAX_OPEN_COLUMNS = 7
MAX_SPLITS = 8  # shares of the output channels
# Tile rows of a task if their number is symbolic.
MAX_SYMBOLIC_ROWS = 4


@dataclass(frozen=True, slots=True)
class WinogradShape:
    """F(m x m, 3 x 3) over ``tile_rows`` by ``tile_columns`` output tiles, m = ``tile``.

    ``channels`` are input channels; the output channels are ``blocks`` blocks of ``block``. The
    number of tile columns is symbolic if ``has_open_row``, that of tile rows if
    ``has_open_height``; they are then usual ones.
    """

    tile: int
    batch: int
    tile_rows: int
    tile_columns: int
    channels: int
    blocks: int
    block: int
    dtype: DType
    has_open_row: bool = False
    has_open_height: bool = False

    @property
    def points(self) -> int:
        """Elements of a tile in the transform domain, each of which is a GEMM over channels."""
        return (self.tile + TAPS - 1) ** 2

    @property
    def outputs(self) -> int:
        return self.blocks * self.block

    @property
    def weight_bytes(self) -> int:
        """Bytes of the transformed weights."""
        return self.dtype.itemsize * self.points * self.channels * self.outputs

    @property
    def multiply_adds(self) -> int:
        """Those of all GEMMs in the transform domain."""
        tiles = self.batch * self.tile_rows * self.tile_columns
        return self.points * tiles * self.channels * self.outputs


@dataclass(frozen=True, slots=True)
class WinogradPlan:
    """A task is ``row_block`` tile rows by one of ``channel_splits`` shares of the outputs.

    Register tiles are ``register_rows`` x ``register_columns`` tiles by ``register_blocks`` blocks
    of output channels. With ``fuses_output`` the output transform of as many channel blocks follows
    their GEMMs at once, while these results are resident in L2; otherwise all GEMMs of a task come
    first, and the weights of each point are read once per task. ``total_cycles`` estimates all
    tasks on one core, ``balanced_cycles`` adds the load imbalance of several. With
    ``rereads_weights`` every row block reads all weights beyond L2.
    """

    row_block: int
    channel_splits: int
    register_rows: int
    register_columns: int
    register_blocks: int
    fuses_output: bool
    total_cycles: float
    balanced_cycles: float
    rereads_weights: bool = False


@functools.lru_cache(maxsize=256)
def plan_winograd(shape: WinogradShape, target: CpuTarget) -> WinogradPlan:
    """The fastest plan; of equals the one with the tallest row blocks and fewest splits."""
    return min(
        (
            plan
            for row_block in row_blocks(shape)
            for splits in divisors_up_to(shape.blocks, MAX_SPLITS)
            for plan in _plans(shape, row_block, splits, target)
        ),
        key=lambda plan: (plan.balanced_cycles, -plan.row_block, plan.channel_splits),
    )


def cold_cycles(shape: WinogradShape, plan: WinogradPlan, target: CpuTarget) -> float:
    """The cycles of ``plan`` in a model, where L2 does not keep weights until the next call.

    They are read at the rate of single cache lines; what a plan reads again for another
    row block comes at that of a stream.
    """
    model = machine_model(target)
    if shape.weight_bytes <= target.l2_bytes // 2:
        return plan.total_cycles
    counted = shape.weight_bytes if plan.rereads_weights else 0
    counted_cycles = counted / model.beyond_l2_load_store_bandwidth
    return plan.total_cycles + max(0.0, model.weight_cycles(shape.weight_bytes) - counted_cycles)


def row_blocks(shape: WinogradShape) -> list[int]:
    """The tile rows that a task may have."""
    blocks = {-(-shape.tile_rows // count) for count in range(1, shape.tile_rows + 1)}
    # A small image still has several blocks, which threads share.
    return sorted(b for b in blocks if b <= MAX_SYMBOLIC_ROWS or not shape.has_open_height)


def _plans(
    shape: WinogradShape, row_block: int, splits: int, target: CpuTarget
) -> Iterator[WinogradPlan]:
    tile, rate = _register_tile(shape, row_block, shape.blocks // splits, target)
    row_blocks = -(-shape.tile_rows // row_block)
    model, lanes = machine_model(target), target.lanes(shape.dtype)
    # The last row block may reach beyond the image: it is computed as a whole.
    tiles = shape.batch * row_blocks * row_block * shape.tile_columns
    gemm = shape.points * tiles * shape.channels * shape.outputs
    gemm /= model.fma_per_cycle * lanes
    transform = model.winograd_transforms(shape.tile)
    # Every split of the output channels transforms the whole input again.
    transforms = tiles * (splits * shape.channels * transform.input_cycles
                          + shape.outputs * transform.output_cycles) / lanes
    for fuses_output in (True, False):
        moved, reads = _beyond_l2(shape, row_block, splits, tile.blocks, target,
                                  fuses_output=fuses_output)
        moved += reads * shape.weight_bytes
        transfer = shape.batch * row_blocks * moved / model.beyond_l2_load_store_bandwidth
        cycles = gemm * rate + transforms + transfer
        balanced = cycles * imbalance(shape.batch * row_blocks * splits)
        yield WinogradPlan(row_block, splits, tile.rows, tile.columns, tile.blocks, fuses_output,
                           cycles, balanced, rereads_weights=reads > 0)


def _beyond_l2(
    shape: WinogradShape, row_block: int, splits: int, register_blocks: int, target: CpuTarget, *,
    fuses_output: bool,
) -> tuple[float, int]:
    """Bytes of data that one row block moves from and to beyond L2, and its reads of all weights.

    The transformed input and the results of the GEMMs stay in L2 if they fill at most three
    quarters of it; the weights too, from row block to row block, if all fit together.
    """
    resident_limit = machine_model(target).l2_resident_bytes
    positions = shape.dtype.itemsize * shape.points * row_block * shape.tile_columns
    inputs, results = positions * shape.channels, positions * shape.outputs // splits
    if fuses_output:
        slices = -(-shape.blocks // (splits * register_blocks))
        resident = inputs + positions * register_blocks * shape.block
        # Stored once, and loaded again for each slice of the outputs.
        moved = inputs * (1 + slices)
    else:
        resident = inputs + results
        # Stored once, and loaded once by the stage that follows.
        moved = 2 * (inputs + results)
    beyond = splits * moved if resident > resident_limit else 0.0
    return beyond, int(resident + shape.weight_bytes // splits > target.l2_bytes)


@dataclass(frozen=True, slots=True)
class _Tile:
    """Tiles of rows and columns of the image by blocks of output channels."""

    rows: int
    columns: int
    blocks: int


def _register_tile(
    shape: WinogradShape, row_block: int, blocks: int, target: CpuTarget
) -> tuple[_Tile, float]:
    """The register tile that covers a row block and its channels in the fewest cycles.

    Also returns its cycles relative to the FMA peak. Tiles of one row of the image come first, then
    whole rows: these are neighbours in memory.
    """
    model, step = machine_model(target), registers(shape.block, target.lanes(shape.dtype))
    wide = shape.tile_columns
    best: tuple[float, _Tile] | None = None
    free = target.vector_registers - 1
    for vectors in range(1, min(blocks, 8) + 1):
        most = free // (vectors * step)
        for columns in range(1, min(MAX_OPEN_COLUMNS if shape.has_open_row else wide, most) + 1):
            is_row = columns == wide and not shape.has_open_row
            for rows in range(1, min(row_block, most) + 1 if is_row else 2):
                if (rows * columns + 1) * vectors * step > free:  # see ``fits_registers``
                    break
                tile = RegisterTile(rows * columns, vectors * step)
                covers = -(-row_block // rows) * -(-wide // columns) * -(-blocks // vectors)
                # A tile starts once and takes a step for each channel.
                start = (model.tile_start_cycles + tile.accumulators) / shape.channels
                has_guards = row_block % rows or wide % columns or blocks % vectors
                cycles = covers * (tile.step_cycles(model) + start)
                cycles *= model.guarded_tile_factor if has_guards else 1.0
                if best is None or cycles < best[0]:
                    best = cycles, _Tile(rows, columns, vectors)
    if best is None:
        best = float(row_block * wide * blocks * step), _Tile(1, 1, 1)
    peak = row_block * wide * blocks * shape.block / target.lanes(shape.dtype) / model.fma_per_cycle
    return best[1], best[0] / peak
