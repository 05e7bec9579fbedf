"""MLX, by the variables of its jaccl

Makes sums and gathers over RDMA devices. forked_ranks.py, or a user, starts it as each rank of a
job with MLX_RANK, MLX_IBV_DEVICES and MLX_JACCL_COORDINATOR.
"""

import os

import mlx.core as mx

import mccl
import mccl.mlx

VARIABLES = "jaccl"


def main() -> None:
    """Checks sums and gathers of several sizes."""
    group = mccl.mlx.init(True, "jaccl")
    rank, size = group.rank(), group.size()
    for count in (1, 1000, 200_000):
        ones = mx.ones((count,)) * (rank + 1)
        total = mccl.mlx.all_sum(ones, group=group)
        assert mx.all(total == size * (size + 1) / 2).item(), count
        gathered = mccl.mlx.all_gather(ones, group=group)
        assert gathered.shape == (size * count,) and gathered[-1].item() == size
    metrics = mccl.get_metrics()
    assert metrics.rdma_links > 0, metrics
    # In a ring, ranks that are not neighbours use TCP.
    assert metrics.tcp_links == 0 or "MLX_JACCL_RING" in os.environ, metrics
    print(f"{metrics.rdma_links} links by rdma, {metrics.tcp_links} by tcp")


if __name__ == "__main__":
    main()
