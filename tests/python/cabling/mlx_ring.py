"""An MLX program on the group that the hostfile of MLX's ring backend describes."""

import mlx.core as mx

import mccl.mlx

group = mccl.mlx.init(backend="ring", strict=True)
total = mx.distributed.all_sum(mx.array(float(group.rank())), group=group)
gathered = mx.distributed.all_gather(mx.array([group.rank()]), group=group)
mx.eval(total, gathered)
print(f"rank {group.rank()} of {group.size()}: {total.item()} {gathered.tolist()}")
