"""Programs on many devices, in many processes, and models on many machines.

Meshes with named axes, and shardings of tensors over them:

mesh = weft.distributed.Mesh({"data": 2, "model": 4})
P = weft.distributed.Sharding.of
plan = weft.distributed.shard(model, mesh, {"x": P("data", None), "fc.weight": P("model", None)})
print(plan)              # what is cut how, and the bytes that collectives move
module = plan.compile()  # runs all devices of the mesh in this process

Ranks that exchange arrays: ``weft.distributed.init()`` in each process, then ``communicator()``.

Batches on the workers of an executor, here or elsewhere:

for y in weft.distributed.map_batches("model.onnx", {"x": x}, batch_size=32): ...

Modules on a machine elsewhere: ``weft.distributed.connect("tcp://10.0.0.1:8786")``.
"""

from weft.distributed.batches import BatchResults, map_batches
from weft.distributed.checkpoints import load_checkpoint, save_checkpoint
from weft.distributed.communicator import Communicator, Pending, run_local
from weft.distributed.data_parallel import DataParallel
from weft.distributed.fully_sharded import FullySharded, FullyShardedState
from weft.distributed.pipeline import Pipeline
from weft.distributed.plan import ShardingPlan, shard
from weft.distributed.plan_by_size import ModuleBySize, PlanBySize, shard_by_size
from weft.distributed.process import communicator, finish, init, rank, world_size
from weft.distributed.remote import RemoteModule, RemoteSession, connect
from weft.distributed.shard_map import shard_map
from weft.distributed.sharded_step import ShardedStep, shard_step
from weft.distributed.tensor_parallel import ColumnParallelLinear, RowParallelLinear
from weft.distributed.visualize import visualize_sharding
from weft.distributed.zero import ZeroOptimizer
from weft.ir.sharding import Link, Mesh, Sharding

__all__ = ["BatchResults", "ColumnParallelLinear", "Communicator", "DataParallel", "FullySharded",
           "FullyShardedState", "Link", "Mesh", "ModuleBySize", "Pending", "Pipeline", "PlanBySize",
           "RemoteModule", "RemoteSession", "RowParallelLinear", "ShardedStep", "Sharding",
           "ShardingPlan", "ZeroOptimizer", "communicator", "connect", "finish", "init",
           "load_checkpoint", "map_batches", "rank", "run_local", "save_checkpoint", "shard",
           "shard_by_size", "shard_map", "shard_step", "visualize_sharding", "world_size"]
