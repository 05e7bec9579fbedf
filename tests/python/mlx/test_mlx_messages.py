"""Messages that are evaluated together are matched, whatever the order in which MLX runs them."""

from __future__ import annotations

import mlx.core as mx
import pytest

import mccl.mlx

#: Number of elements of a message that no link buffers before it is received: 16 MiB.
LONG = 1 << 22


def neighbours(group) -> tuple[int, int, int]:
    rank, size = group.rank(), group.size()
    return rank, (rank + 1) % size, (rank - 1) % size


def check_exchange(elements: int, order: str) -> None:
    """Every rank sends a newly computed array to the right, and receives from the left."""
    group = mccl.mlx.init(True)
    rank, right, left = neighbours(group)
    for step in range(3):
        mine = mx.full((elements,), float(rank + step)) * 2
        sent = mx.distributed.send(mine, right, group=group)
        got = mx.distributed.recv_like(mine, left, group=group)
        if order == "receive first":
            mx.eval(got, sent)
        else:
            mx.eval(sent, got)
        assert mx.all(got == 2.0 * (left + step)).item()
        assert mx.all(sent == 2.0 * (rank + step)).item()


@pytest.mark.parametrize("order", ["send first", "receive first"])
@pytest.mark.parametrize("elements", [1, LONG])
def test_a_send_and_a_receive_in_one_evaluation(ranks, elements: int, order: str):
    ranks.run(check_exchange, elements, order)


def check_exchange_that_is_used(elements: int) -> None:
    """MLX uses the received array before it runs the send, which does not depend on it."""
    group = mccl.mlx.init(True)
    rank, right, left = neighbours(group)
    mine = mx.full((elements,), float(rank)) + 1
    got = mx.distributed.recv((elements,), mx.float32, left, group=group)
    used = mx.exp(mx.log(got * 2 + mine))
    sent = mx.distributed.send(mine, right, group=group)
    mx.eval(sent, used)
    expected = mx.array(2.0 * (left + 1) + rank + 1)
    assert mx.allclose(used, expected, rtol=1e-4).item()


@pytest.mark.parametrize("elements", [1, LONG])
def test_a_receive_whose_result_is_used_delays_no_send(ranks, elements: int):
    ranks.run(check_exchange_that_is_used, elements)


def check_all_pairs(elements: int) -> None:
    group = mccl.mlx.init(True)
    rank, size = group.rank(), group.size()
    others = [peer for peer in range(size) if peer != rank]
    sent = [
        mx.distributed.send(mx.full((elements,), 10.0 * rank + peer), peer, group=group)
        for peer in others
    ]
    got = [mx.distributed.recv((elements,), mx.float32, peer, group=group) for peer in others]
    mx.eval(sent, got)
    for peer, array in zip(others, got, strict=True):
        assert mx.all(array == 10.0 * peer + rank).item()


@pytest.mark.parametrize("elements", [1, LONG // 8])
def test_everyone_with_everyone_in_one_evaluation(ranks, elements: int):
    ranks.run(check_all_pairs, elements)


def check_a_chosen_stream() -> None:
    group = mccl.mlx.init(True)
    rank, right, left = neighbours(group)
    stream = mx.new_stream(mx.cpu)
    sent = mx.distributed.send(mx.array([rank]), dst=right, group=group, stream=stream)
    mx.eval(sent)
    got = mx.distributed.recv((1,), mx.int32, src=left, group=group, stream=stream)
    assert got.item() == left


def test_streams_and_peers_that_are_named(two):
    two.run(check_a_chosen_stream)


def test_other_groups_are_left_alone():
    alone = mx.distributed.init()
    with pytest.raises(ValueError, match="singleton"):
        mx.distributed.send(mx.ones(2), 1, group=alone)
    with pytest.raises(ValueError, match="singleton"):
        mx.distributed.recv((2,), mx.float32, 1)
    assert "rank" in mx.distributed.send.__doc__
