"""Two ranks of an MLX program, whose sums and messages go through an RDMA device.

checks.sh starts one process a rank, with MCCL_RANK, MCCL_WORLD_SIZE and MCCL_ROOT, or with the
variables of MLX's jaccl.
"""

import sys

import mlx.core as mx

import mccl
import mccl.mlx


def main(backend: str) -> None:
    """Sums, gathers and messages of several sizes, each checked."""
    group = mccl.mlx.init(True, backend)
    rank, size = group.rank(), group.size()
    for count in (1, 1000, 200_000):
        ones = mx.ones((count,)) * (rank + 1)
        total = mccl.mlx.all_sum(ones, group=group)
        assert mx.all(total == size * (size + 1) / 2).item(), count
        gathered = mccl.mlx.all_gather(ones, group=group)
        assert gathered.shape == (size * count,) and gathered[-1].item() == size
    metrics = mccl.get_metrics()
    assert metrics.rdma_links > 0 and metrics.tcp_links == 0, metrics
    print(f"rank {rank}: {metrics.rdma_links} links by rdma")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "mccl")
