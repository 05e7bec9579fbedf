"""Calls that do not block: waiting, asyncio, callbacks, memory, signals."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
import threading
import weakref

import numpy as np
import pytest
from rank_processes import run, well

import mccl.distributed as dist

PATIENCE = 20


def let_go(world) -> None:
    """Rank 0 releases the other ranks, which wait in held()."""
    for peer in range(1, world.size):
        world.send(0, peer, 77)


def held(world) -> None:
    world.recv(np.empty((), "i8"), 0, 77)


def check_work(world) -> None:
    x = np.arange(5.0)
    if world.rank != 0:
        held(world)
    work = world.all_reduce(x, wait=False)
    if world.rank == 0:
        assert isinstance(work, dist.Work)
        assert not work.done()
        assert work.error() is None
        assert "all_reduce, running" in repr(work)
        with pytest.raises(dist.Error, match="all_reduce is not done"):
            work.result()
        with pytest.raises(dist.TimeoutError, match=r"not done after 10 ms; it continues until"):
            work.wait(0.01)
        with pytest.raises(dist.InvalidArgument, match="timeout is -1"):
            work.wait(-1)
        let_go(world)
    assert (work.wait(PATIENCE) == x * world.size).all()
    assert work.done()
    assert work.result() is work.wait()
    assert work.source is None
    assert "all_reduce, done" in repr(work)


def test_a_work(four):
    four.run(check_work)


def check_many_at_once(world) -> None:
    arrays = [np.full(1000 + i, i) for i in range(40)]
    works = [world.all_reduce(x, out=x, wait=False) for x in arrays]
    for i, work in reversed(list(enumerate(works))):
        assert work.wait() is arrays[i]
        assert (arrays[i] == i * world.size).all()


def test_many_at_once(four):
    four.run(check_many_at_once)


def check_memory(world) -> None:
    if world.rank == 0:
        inside, outside = np.ones(1000), np.zeros(1000)
        freed = threading.Barrier(3)
        for x in (inside, outside):
            weakref.finalize(x, threading.Thread(target=freed.wait, args=(PATIENCE,)).start)
        watched = weakref.ref(inside), weakref.ref(outside)
        world.all_reduce(inside, out=outside, wait=False)  # the Work is dropped at once
        del inside, outside, x
        gc.collect()
        assert all(ref() is not None for ref in watched)
        let_go(world)
        world.barrier()
        freed.wait(PATIENCE)
        assert all(ref() is None for ref in watched)
    else:
        held(world)
        assert (world.all_reduce(np.ones(1000)) == world.size).all()
        world.barrier()


def test_fault_16_arrays_live_as_long_as_the_call(pair):
    pair.run(check_memory)


def check_asyncio(world) -> None:
    async def one(i: int):
        return await world.all_reduce(np.full(10, i), wait=False)

    async def main() -> None:
        # Calls begin in the order in which gather starts them, which is the same on all ranks.
        found = await asyncio.gather(*(one(i) for i in range(20)))
        assert [x[0] for x in found] == [i * world.size for i in range(20)]
        if world.rank == 0:
            ticks = 0
            work = world.barrier(wait=False)

            async def tick() -> None:
                nonlocal ticks
                while not work.done():
                    ticks += 1
                    if ticks == 3:
                        let_go(world)
                    await asyncio.sleep(0)

            waiting = asyncio.create_task(tick())
            assert await work is None
            await waiting
            assert ticks >= 3
        else:
            held(world)
            await world.barrier(wait=False)

    asyncio.run(main())


def test_asyncio(four):
    four.run(check_asyncio)


def check_asyncio_cancelled(world) -> None:
    async def main() -> None:
        work = world.all_reduce(np.ones(3), wait=False)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(_awaiting(work), 0.01)
        assert not work.done()
        let_go(world)
        assert (await work == world.size).all()

    if world.rank == 0:
        asyncio.run(main())
        work = world.barrier(wait=False)
        loop = asyncio.new_event_loop()
        loop.run_until_complete(_start_only(work))
        loop.close()  # while a task awaits the call, which outlives this loop
        let_go(world)
        work.wait()
    else:
        held(world)
        world.all_reduce(np.ones(3))
        held(world)
        world.barrier()
    assert world.all_reduce(1) == world.size


async def _awaiting(work):
    return await work


async def _start_only(work) -> None:
    task = asyncio.create_task(_awaiting(work))
    await asyncio.sleep(0)
    task.cancel()


def test_a_cancelled_await_leaves_the_call(pair):
    pair.run(check_asyncio_cancelled)


def check_callbacks(world) -> None:
    called, raised = [], []
    good, bad = threading.Event(), threading.Event()

    def note() -> None:
        called.append(threading.current_thread())
        good.set()

    def fail() -> None:
        raise ValueError("of a callback")

    def hook(unraisable) -> None:
        raised.append(str(unraisable.exc_value))
        bad.set()

    sys.unraisablehook = hook
    if world.rank != 0:
        held(world)
    work = world.barrier(wait=False)
    work.on_done(fail)
    work.on_done(note)
    if world.rank == 0:
        assert called == []
        let_go(world)
    assert good.wait(PATIENCE)
    assert bad.wait(PATIENCE)
    assert work.done()
    assert raised == ["of a callback"]
    assert called[0] is not threading.main_thread()
    good.clear()
    work.on_done(note)  # the call is done already
    assert good.wait(PATIENCE)
    sys.unraisablehook = sys.__unraisablehook__


def test_callbacks(pair):
    pair.run(check_callbacks)


def test_callbacks_run_after_a_shutdown_during_which_one_was_added():
    code = """
        import threading, time
        world = dist.init(rank=0, size=1)
        work = world.all_reduce(1, wait=False)
        began, added, again = (threading.Event() for _ in range(3))
        def last():
            began.set()
            time.sleep(0.5)  # Meanwhile shutdown() begins to wait for this callback.
            work.on_done(added.set)
            try:
                dist.shutdown()
            except dist.InvalidArgument:
                print("refused")
            time.sleep(0.5)
        work.on_done(last)
        assert began.wait(30)
        dist.shutdown()
        assert added.wait(30)
        work.on_done(again.set)
        print(again.wait(30))
    """
    assert well([run(code)]) == ["refused\nTrue\n"]


def check_threads(world) -> None:
    """A waiting thread blocks neither Python nor other calls."""
    if world.rank == 0:
        out = np.empty(3)
        waiting = threading.Thread(target=world.recv, args=(out, 1, 5))
        waiting.start()
        assert world.all_reduce(1) == world.size
        world.send(1, 1, 6)
        waiting.join(PATIENCE)
        assert (out == 4).all()
    else:
        assert world.all_reduce(1) == world.size
        world.recv(np.empty((), "i8"), 0, 6)
        world.send(np.full(3, 4.0), 0, 5)


def test_a_waiting_thread_delays_no_other_thread(pair):
    pair.run(check_threads)


def interrupt(handled: threading.Event) -> None:
    for _ in range(3):
        os.kill(os.getpid(), signal.SIGINT)
        handled.wait(PATIENCE)
        handled.clear()


def check_interrupt(world, blocking: bool) -> None:
    if world.rank == 0:
        seen = []
        handled = threading.Event()

        def handler(number, frame) -> None:
            seen.append(number)
            handled.set()
            if len(seen) == 3:
                raise KeyboardInterrupt

        before = signal.signal(signal.SIGINT, handler)
        work = None if blocking else world.barrier(wait=False)
        threading.Thread(target=interrupt, args=(handled,)).start()
        with pytest.raises(KeyboardInterrupt):
            world.barrier() if blocking else work.wait()
        signal.signal(signal.SIGINT, before)
        assert len(seen) == 3
        assert world.failure is None
        let_go(world)
    else:
        held(world)
        world.barrier()
    # The call completed, although its caller stopped waiting.
    assert world.all_reduce(1) == world.size


@pytest.mark.parametrize("blocking", [True, False])
def test_control_c_ends_a_wait_and_not_the_call(pair, blocking):
    pair.run(check_interrupt, blocking)
