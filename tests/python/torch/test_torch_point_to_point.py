"""Messages between two ranks, and their independence from collectives."""

from __future__ import annotations

import torch
import torch.distributed as dist


def neighbours() -> tuple[int, int]:
    rank, size = dist.get_rank(), dist.get_world_size()
    return (rank - 1) % size, (rank + 1) % size


def check_tags() -> None:
    rank = dist.get_rank()
    if rank == 0:
        for tag in (3, 1, 2):
            dist.send(torch.full((4,), float(tag)), 1, tag=tag)
        dist.send(torch.full((4,), 1.5), 1, tag=1)
    elif rank == 1:
        for tag, value in ((1, 1.0), (2, 2.0), (1, 1.5), (3, 3.0)):
            tensor = torch.zeros(4)
            assert dist.recv(tensor, 0, tag=tag) == 0
            assert tensor.eq(value).all()


def test_messages_match_by_tag_in_order(pool):
    pool.run(check_tags)


def check_any_source() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    if rank == 0:
        seen = set()
        for _ in range(size - 1):
            tensor = torch.zeros(3)
            source = dist.recv(tensor)
            assert tensor.eq(source).all()
            seen.add(source)
        assert seen == set(range(1, size))
        tensor = torch.zeros(1)
        work = dist.irecv(tensor, tag=9)
        work.wait()
        assert work._source_rank() == 2
    else:
        dist.send(torch.full((3,), float(rank)), 0)
        if rank == 2:
            dist.send(torch.ones(1), 0, tag=9)
    dist.barrier()


def test_fault_22_receive_from_any(pool):
    pool.run(check_any_source)


def check_irecv_first(count: int) -> None:
    rank = dist.get_rank()
    peer = rank ^ 1
    incoming = torch.zeros(count)
    receive = dist.irecv(incoming, peer)
    send = dist.isend(torch.full((count,), float(rank)), peer)
    send.wait()
    receive.wait()
    assert receive.is_completed()
    assert incoming.eq(peer).all()


def test_fault_10_irecv_then_isend_on_both_ranks(pool):
    for count in (1, 1 << 22):
        pool.run(check_irecv_first, count)


def check_both_ways(count: int) -> None:
    rank = dist.get_rank()
    if rank > 1:
        return
    peer = 1 - rank
    outgoing, incoming = torch.full((count,), float(rank)), torch.zeros(count)
    # Both directions are full before either rank receives.
    send = dist.isend(outgoing, peer)
    dist.recv(incoming, peer)
    send.wait()
    assert incoming.eq(peer).all()
    # One direction completes while the other waits. Rank 0 receives only after rank 1's token.
    incoming.zero_()
    token = torch.zeros(1)
    send = dist.isend(outgoing, peer)
    if rank == 0:
        send.wait()
        dist.recv(token, peer, tag=1)
        dist.recv(incoming, peer)
    else:
        dist.recv(incoming, peer)
        assert not send.is_completed()
        dist.send(token, peer, tag=1)
        send.wait()
    assert incoming.eq(peer).all()


def test_fault_27_large_messages_go_both_ways_at_once(pool):
    pool.run(check_both_ways, 1 << 24)


def check_beside_collectives() -> None:
    rank = dist.get_rank()
    group = dist.group.WORLD
    before = group._get_backend(torch.device("cpu"))._get_sequence_number_for_group()
    for round_ in range(20):
        if rank == 0:
            dist.send(torch.tensor([round_]), 1)
        elif rank == 1:
            tensor = torch.zeros(1, dtype=torch.int64)
            dist.recv(tensor, 0)
            assert tensor.item() == round_
        tensor = torch.ones(5)
        dist.all_reduce(tensor)
        assert tensor.eq(dist.get_world_size()).all()
    after = group._get_backend(torch.device("cpu"))._get_sequence_number_for_group()
    assert after - before == 20


def test_fault_09_messages_do_not_count_as_collectives(pool):
    pool.run(check_beside_collectives)


def check_pending_receive() -> None:
    # A receive without a matching send blocks no collective.
    rank = dist.get_rank()
    tensor = torch.zeros(2)
    receive = dist.irecv(tensor, 0, tag=7) if rank == 1 else None
    for _ in range(5):
        dist.all_reduce(torch.ones(1000))
    if rank == 0:
        dist.send(torch.ones(2), 1, tag=7)
    if receive is not None:
        receive.wait()
        assert tensor.eq(1).all()


def test_fault_11_a_pending_receive_stops_no_collective(pool):
    pool.run(check_pending_receive)


def check_batch(count: int) -> None:
    rank = dist.get_rank()
    left, right = neighbours()
    incoming = torch.zeros(2, count)
    operations = [
        dist.P2POp(dist.isend, torch.full((count,), float(rank)), right, tag=1),
        dist.P2POp(dist.irecv, incoming[0], left, tag=1),
        dist.P2POp(dist.irecv, incoming[1], right, tag=2),
        dist.P2POp(dist.isend, torch.full((count,), rank + 0.5), left, tag=2),
    ]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    assert incoming[0].eq(left).all()
    assert incoming[1].eq(right + 0.5).all()


def check_batch_strided() -> None:
    left, right = neighbours()
    incoming = torch.zeros(10)
    outgoing = torch.arange(10.0) + dist.get_rank()
    works = dist.batch_isend_irecv(
        [
            dist.P2POp(dist.irecv, incoming[::2], left),
            dist.P2POp(dist.isend, outgoing[::2], right),
        ]
    )
    for work in works:
        work.wait()
    assert incoming.tolist() == [(i + left) if i % 2 == 0 else 0 for i in range(10)]


def check_broken_batch() -> None:
    left, right = neighbours()
    good = dist.P2POp(dist.isend, torch.ones(1), right)
    bad = dist.P2POp(dist.isend, torch.ones(1), right, tag=-5)
    try:
        dist.batch_isend_irecv([good, bad])
    except ValueError as error:
        assert "nonnegative" in str(error)
    else:
        raise AssertionError("a negative tag passed")
    # Operations that the batch recorded before its failure are still carried out.
    tensor = torch.zeros(1)
    works = dist.batch_isend_irecv([dist.P2POp(dist.irecv, tensor, left)])
    for work in works:
        work.wait()
    assert tensor.item() == 1
    dist.barrier()


def test_batch_isend_irecv(pool):
    for count in (0, 1, 1 << 20):
        pool.run(check_batch, count)
    pool.run(check_batch_strided)
    pool.run(check_broken_batch)


def check_self_and_range() -> None:
    group = dist.group.WORLD
    rank, size = dist.get_rank(), dist.get_world_size()
    for call in (
        lambda: group.send([torch.ones(1)], rank, 0),
        lambda: group.send([torch.ones(1)], size, 0),
        lambda: group.recv([torch.ones(1)], -1, 0),
        lambda: group.recv([torch.ones(1)], size, 0),
    ):
        try:
            call()
        except ValueError:
            continue
        raise AssertionError("a peer that is none passed")
    dist.barrier()


def test_wrong_peers_are_refused_at_once(pool):
    pool.run(check_self_and_range)


def check_many() -> None:
    left, right = neighbours()
    incoming = [torch.zeros(64) for _ in range(200)]
    receives = [dist.irecv(t, left, tag=i) for i, t in enumerate(incoming)]
    outgoing = [torch.full((64,), float(i)) for i in range(200)]
    sends = [dist.isend(t, right, tag=i) for i, t in reversed(list(enumerate(outgoing)))]
    for work in sends + receives:
        work.wait()
    for i, tensor in enumerate(incoming):
        assert tensor.eq(i).all()


def test_many_at_once_in_any_order(pool):
    pool.run(check_many)
