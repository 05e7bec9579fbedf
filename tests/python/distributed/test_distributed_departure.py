"""A rank that leaves although a living peer has not yet taken what it sent."""

from __future__ import annotations

import signal
import time

import pytest
from rank_processes import finish, start
from world_pool import free_address

#: Rank 0 receives one message and then stops itself. Rank 1 waits for that, completes some sends,
#: whose data the connection holds, and leaves.
CODE = """
    import os, signal, time
    import numpy as np, psutil
    data = np.zeros(1 << 14, np.uint8)
    world = dist.init()
    process = psutil.Process(int(world.broadcast(np.array([os.getpid()]), 0)[0]))
    if world.rank == 0:
        world.recv(data, 1)
        world.barrier()
        print("stops", flush=True)
        os.kill(os.getpid(), signal.SIGSTOP)
    else:
        world.send(data, 0)
        world.barrier()
        while process.status() != psutil.STATUS_STOPPED:
            time.sleep(0.01)
        sent = [world.send(data, 0, wait=False) for _ in range(100)]
        sent[10].wait()
        print("leaves", flush=True)
        dist.shutdown()
"""


@pytest.fixture
def leaver(request):
    """Rank 1 on its way out."""
    settings = {
        "MCCL_WORLD_SIZE": "2",
        "MCCL_ROOT": free_address(),
        "MCCL_TRANSPORT": "tcp",
        "MCCL_LIVENESS_INTERVAL": "100",
        "MCCL_CONNECT_TIMEOUT": str(request.param),
        "MCCL_LOG_LEVEL": "INFO",
    }
    ranks = [start(CODE, MCCL_RANK=str(rank), **settings) for rank in range(2)]
    try:
        assert [rank.stdout.readline() for rank in ranks] == ["stops\n", "leaves\n"]
        yield ranks[1]
    finally:
        for rank in ranks:
            rank.kill()
            rank.communicate()


@pytest.mark.parametrize("leaver", [90], indirect=True)
def test_a_signal_ends_the_wait_for_the_peer(leaver):
    told = next(line for line in leaver.stderr if "waits until its peers have received" in line)
    assert "INFO" in told and "rank 0 (" in told and "after 90 s (MCCL_CONNECT_TIMEOUT)" in told
    leaver.send_signal(signal.SIGINT)
    began = time.monotonic()
    _, _, err = finish(leaver)
    assert "rank 0 had not received everything when a signal ended this rank's wait: up to" in err
    assert "KeyboardInterrupt" in err
    assert time.monotonic() - began < 10


@pytest.mark.parametrize("leaver", [3], indirect=True)
def test_the_wait_for_the_peer_lasts_at_most_the_connect_timeout(leaver):
    began = time.monotonic()
    status, _, err = finish(leaver)
    assert status == 0, err
    assert "MCCL_CONNECT_TIMEOUT: up to" in err
    assert time.monotonic() - began < 3 + 2
