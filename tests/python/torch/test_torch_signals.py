"""Control-C while a call waits for ranks that do something else."""

from __future__ import annotations

import linecache
import os
import signal
import sys
import threading
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

PATIENCE = 30
FAR = timedelta(seconds=PATIENCE)


def main_thread_waits() -> bool:
    """Returns whether the main thread waits for a call that it has begun."""
    frame = sys._current_frames()[threading.main_thread().ident]
    line = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
    return any(wait in line for wait in (".wait(", "monitored_barrier(", "waiter.acquire("))


def interrupt(ready: threading.Event, handled: threading.Event) -> None:
    ready.wait(PATIENCE)
    while not main_thread_waits():
        os.sched_yield()
    for _ in range(3):
        os.kill(os.getpid(), signal.SIGINT)
        handled.wait(PATIENCE)
        handled.clear()


def interrupted(call) -> None:
    """Runs a blocking call and sends it SIGINT three times; the third raises KeyboardInterrupt."""
    seen = []
    ready, handled = threading.Event(), threading.Event()

    def handler(number, frame) -> None:
        seen.append(number)
        handled.set()
        if len(seen) == 3:
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, handler)
    thread = threading.Thread(target=interrupt, args=(ready, handled))
    thread.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            ready.set()
            call()
    finally:
        thread.join()
        signal.signal(signal.SIGINT, before)
    assert len(seen) == 3


def release(name: str) -> None:
    dist.distributed_c10d._get_default_store().set(name, "go")


def held(name: str) -> None:
    dist.distributed_c10d._get_default_store().wait([name], FAR)


def begin_and_wait() -> None:
    work = dist.all_reduce(torch.ones(4), async_op=True)
    work.wait()


def begin_and_wait_with_timeout() -> None:
    work = dist.all_reduce(torch.ones(4), async_op=True)
    work.wait(FAR)


CALLS = {
    "all_reduce": lambda: dist.all_reduce(torch.ones(4)),
    "wait": begin_and_wait,
    "wait_with_timeout": begin_and_wait_with_timeout,
    "barrier": dist.barrier,
}


def check_collective(name: str) -> None:
    call = CALLS[name]
    if dist.get_rank() == 0:
        interrupted(call)
        release(name)
    else:
        held(name)
        call()
    # The call completed, although its caller stopped waiting.
    total = torch.ones(1)
    dist.all_reduce(total)
    assert total.item() == dist.get_world_size()


@pytest.mark.parametrize("name", CALLS)
def test_control_c_ends_a_wait_for_a_collective_while_the_peers_do_something_else(pool, name):
    pool.run(check_collective, name, deadline=60)


def check_recv() -> None:
    got = torch.zeros(1)
    if dist.get_rank() == 0:
        interrupted(lambda: dist.recv(got, src=1))
        release("recv")
    if dist.get_rank() == 1:
        held("recv")
        dist.send(torch.ones(1), dst=0)
    dist.barrier()


def check_second_wait() -> None:
    got = torch.zeros(1)
    if dist.get_rank() == 0:
        work = dist.irecv(got, src=1)

        def wait() -> None:
            work.wait()

        interrupted(wait)
        release("second wait")
        wait()
        assert got.item() == 1
    if dist.get_rank() == 1:
        held("second wait")
        dist.send(torch.ones(1), dst=0)


def check_send() -> None:
    # The message is too large to be sent before the receiver asks for it.
    data = torch.ones(32 << 20)
    if dist.get_rank() == 0:
        interrupted(lambda: dist.send(data, dst=1))
        release("send")
    if dist.get_rank() == 1:
        held("send")
        dist.recv(data, src=0)
    dist.barrier()


@pytest.mark.parametrize("check", [check_recv, check_second_wait, check_send])
def test_control_c_ends_a_wait_for_a_message(pool, check):
    pool.run(check, deadline=60)


def check_monitored_barrier(waiting: int) -> None:
    world = dist.group.WORLD
    if dist.get_rank() == waiting:
        interrupted(lambda: world.monitored_barrier(FAR))
        release(f"monitored {waiting}")
    held(f"monitored {waiting}")


@pytest.mark.parametrize("waiting", [0, 1])
def test_control_c_ends_a_monitored_barrier(pool, waiting):
    pool.run_and_break(check_monitored_barrier, waiting, deadline=60)


def check_thread() -> None:
    """Only the main thread may run signal handlers, so another thread keeps waiting."""
    if dist.get_rank() == 0:
        done = threading.Event()
        waiting = threading.Thread(target=lambda: (dist.barrier(), done.set()))
        waiting.start()

        def wait() -> None:
            # Waits in slices, because the system may deliver the signal to any thread.
            while not done.wait(0.05):
                pass

        interrupted(wait)
        assert not done.is_set()
        release("thread")
        assert done.wait(PATIENCE)
        waiting.join()
    else:
        held("thread")
        dist.barrier()


def test_a_wait_on_another_thread_leaves_signals_to_the_main_one(pool):
    pool.run(check_thread, deadline=60)
