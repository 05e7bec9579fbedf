"""Arrays on MLX's GPU. Needs an MLX built for CUDA. One GPU serves all ranks."""

from __future__ import annotations

import mlx.core as mx
import pytest
from free_port import free_port
from mlx_processes import run_ranks

from mccl.mlx.loader import load

pytestmark = pytest.mark.skipif(
    not load().has_gpu(), reason="needs a GPU, MLX for CUDA, and MCCL built beside it"
)

#: Settings for the path through pinned host memory, and for the kernels on a shared GPU.
WAYS = [{}, {"MCCL_BACKEND": "cuda", "MCCL_TEST_ONLY_SHARED_GPU": "nvlink"}]

CALLS = """
group = mccl.mlx.init(True, "nccl")
rank, size = group.rank(), group.size()
assert mx.default_device() == mx.gpu
x = mx.arange(1000) * 1.0 + rank
total = mx.arange(1000) * size + sum(range(size))
assert mx.array_equal(mx.distributed.all_sum(x, group=group), total)
assert mx.array_equal(mx.distributed.all_max(x, group=group), mx.arange(1000) + size - 1)
assert mx.distributed.all_gather(x[:2], group=group).shape == (2 * size,)
part = slice(rank * (1000 // size), (rank + 1) * (1000 // size))
assert mx.array_equal(mx.distributed.sum_scatter(x, group=group), total[part])
assert mx.array_equal(mccl.mlx.all_mean(x, group=group), total / size)
whole = mx.distributed.all_sum(mx.array([1, 2, 3], dtype=mx.uint16), group=group)
assert whole.tolist() == [size, 2 * size, 3 * size]
chain = x * 0
for step in range(100):  # what MLX records before each call is launched before it
    chain = mx.distributed.all_sum(chain * 0 + step, group=group) + 1
assert mx.all(chain == 99 * size + 1)
strided = mx.distributed.all_sum(mx.ones((6, 4))[:, ::2], group=group)
assert mx.all(strided == size)
if rank == 0:
    mx.eval(mx.distributed.send(x, 1, group=group))
if rank == 1:
    assert mx.array_equal(mx.distributed.recv_like(x, 0, group=group), mx.arange(1000))
sub = group.split(0)
assert mx.distributed.all_sum(mx.array(1.0), group=sub).item() == size
on_host = mx.distributed.all_sum(mx.array(2.0), group=group, stream=mx.cpu)
assert on_host.item() == 2 * size
"""


@pytest.mark.parametrize("way", WAYS, ids=["host", "kernels"])
def test_collectives_of_gpu_arrays(way):
    place = {
        "NCCL_HOST_IP": "127.0.0.1",
        "NCCL_PORT": str(free_port()),
        "MLX_WORLD_SIZE": "2",
        "MCCL_PORT_BASE": "0",
    }
    run_ranks(CALLS, [place | way | {"MLX_RANK": str(rank)} for rank in range(2)])


def test_the_backend_is_there():
    import mccl.mlx

    assert mccl.mlx.is_available("nccl") == mx.cuda.is_available()
