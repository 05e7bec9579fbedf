"""A process that has data to deliver ends in bounded time after its receivers have ended."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator

import pytest
from launching import environment, heed_signals
from world_pool import free_address

PATIENCE = 60
#: Seconds within which a process ends once every peer that lacks data is dead or has left.
BOUND = 2.0

#: Receives nothing, and leaves when it reads a line.
RECEIVER = """
    import sys
    import mccl.distributed as dist

    world = dist.init(connect_timeout=60)
    if world.rank == 0:
        world.recv(bytearray(1), 1)
    world.barrier()
    print("met", flush=True)
    sys.stdin.readline()
"""
#: Sends to rank 0 without waiting when it reads a line, and leaves when it reads another.
SENDER = """
    import atexit, sys
    import numpy as np
    import mccl.distributed as dist

    world = dist.init(connect_timeout=60)
    world.send(b"x", 0)  # makes the link, which needs both ranks
    world.barrier()
    # Runs before the library leaves the job.
    atexit.register(print, "leaves", flush=True)
    print("met", flush=True)
    sys.stdin.readline()
    SEND
    print("sent", flush=True)
    sys.stdin.readline()
"""
#: 16 MiB, which are sent only once the receiver asks for them.
LARGE = "works = [world.send(np.ones(1 << 20), 0, tag, wait=False) for tag in range(2)]"
#: Messages whose sends are complete although the receiver lacks them, until no more fit.
SMALL = """
    sent = world.send(np.ones(1000), 0, wait=False)
    try:
        while True:
            sent.wait(1)
            sent = world.send(np.ones(1000), 0, wait=False)
    except dist.TimeoutError:
        pass
"""


def start(code: str, rank: int, size: int, root: str) -> subprocess.Popen[str]:
    place = {"MCCL_RANK": str(rank), "MCCL_WORLD_SIZE": str(size), "MCCL_ROOT": root}
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(**place, MCCL_PORT_BASE="0", MCCL_TRANSPORT="tcp"),
        preexec_fn=heed_signals,
    )


@pytest.fixture
def begin() -> Iterator[Callable[[str], list[subprocess.Popen[str]]]]:
    """A function that starts a receiver, a sender that runs the code, and an idle rank."""
    ranks: list[subprocess.Popen[str]] = []

    def started(send: str) -> list[subprocess.Popen[str]]:
        root = free_address()
        sender = textwrap.dedent(SENDER).replace("SEND", textwrap.dedent(send))
        for rank, code in enumerate((RECEIVER, sender, RECEIVER)):
            ranks.append(start(code, rank, 3, root))
        for process in ranks:
            hear(process, "met")
        return ranks

    yield started
    for process in ranks:
        process.kill()
        process.communicate()


def tell(process: subprocess.Popen[str]) -> None:
    process.stdin.write("\n")
    process.stdin.flush()


def hear(process: subprocess.Popen[str], word: str) -> None:
    assert process.stdout.readline() == f"{word}\n", process.communicate()


def check_end(process: subprocess.Popen[str], since: float) -> None:
    process.wait(PATIENCE)
    seconds = time.monotonic() - since
    assert process.returncode == 0, process.communicate()
    assert seconds < BOUND


def check_others(ranks: list[subprocess.Popen[str]]) -> None:
    """The rank that has sent nothing must end too."""
    now = time.monotonic()
    tell(ranks[2])
    check_end(ranks[2], now)


@pytest.mark.parametrize("is_killed", [True, False], ids=["killed", "left"])
def test_a_large_message_without_a_receiver_delays_no_exit(begin: Callable, is_killed: bool):
    receiver, sender, _ = ranks = begin(LARGE)
    tell(sender)
    hear(sender, "sent")
    receiver.kill() if is_killed else tell(receiver)
    receiver.wait(PATIENCE)
    now = time.monotonic()
    tell(sender)
    check_end(sender, now)
    check_others(ranks)


@pytest.mark.parametrize("is_killed", [True, False], ids=["killed", "leaves"])
def test_a_sender_waits_for_a_receiver_and_no_longer(begin: Callable, is_killed: bool):
    receiver, sender, _ = ranks = begin(SMALL)
    receiver.send_signal(signal.SIGSTOP)
    tell(sender)
    hear(sender, "sent")
    tell(sender)
    hear(sender, "leaves")
    with pytest.raises(subprocess.TimeoutExpired):
        sender.wait(1)  # The receiver lacks data and may still continue.
    now = time.monotonic()
    if is_killed:
        receiver.kill()
    else:
        tell(receiver)
        receiver.send_signal(signal.SIGCONT)
    check_end(sender, now)
    check_others(ranks)
