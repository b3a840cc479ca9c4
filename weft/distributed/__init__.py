"""Programs on many devices: meshes with named axes, and shardings of tensors over them.

mesh = weft.distributed.Mesh({"data": 2, "model": 4})
P = weft.distributed.Sharding.of
plan = weft.distributed.shard(model, mesh, {"x": P("data", None), "fc.weight": P("model", None)})
print(plan)              # what is cut how, and the bytes that collectives move
module = plan.compile()  # runs all devices of the mesh in this process
"""

from weft.distributed.plan import ShardingPlan, shard
from weft.distributed.visualize import visualize_sharding
from weft.ir.sharding import Mesh, Sharding

__all__ = ["Mesh", "Sharding", "ShardingPlan", "shard", "visualize_sharding"]
