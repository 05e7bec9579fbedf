"""The life of one rank in a trial, in a process of its own.

A rank writes what happens to it as lines of JSON into one pipe, and reads from another when to go
on. Times are those of the machine's monotonic clock, which all processes share.
"""

import contextlib
import ctypes
import faulthandler
import itertools
import json
import os
import resource
import signal
import sys
import threading
import time
from dataclasses import replace
from typing import Any, NoReturn

import faces
import traffic
from scenario import (
    ABORTS,
    DEATHS,
    HARMLESS,
    OMITTED_TIMEOUT,
    OPTIONAL,
    TIMED,
    Face,
    Fault,
    Moment,
    Scenario,
)
from traffic import Call, Started

import mccl.distributed as dist

#: Texts longer than this could be torn apart in a pipe.
LONGEST = 1500
#: Commands of the job to a rank whose calls have ended, and to a victim that waits.
RECOVER, END, GO = b"r", b"e", b"g"


class Rank:
    def __init__(self, scenario: Scenario, rank: int, say: int, hear: int) -> None:
        self.scenario = scenario
        self.rank = rank
        self._say, self._hear = say, hear
        self._limits: list[tuple[int, tuple[int, int]]] = []
        self._files: list[int] = []
        self._errors = (dist.Error,) if scenario.face == Face.NUMPY else (RuntimeError, ValueError)

    @property
    def is_victim(self) -> bool:
        return self.rank == self.scenario.victim and self.scenario.fault != Fault.NONE

    def say(self, event: str, **facts: object) -> None:
        line = {"event": event, "rank": self.rank, "at": time.monotonic(), **facts}
        os.write(self._say, json.dumps(line).encode() + b"\n")

    def live(self, root: str) -> NoReturn:
        """Runs all phases. Ends the process."""
        faulthandler.register(signal.SIGUSR1)
        try:
            world = self._meet(root)
            if world is not None:
                self._run(world)
                while os.read(self._hear, 1) == RECOVER:
                    self._recover(world)
            else:
                os.read(self._hear, 1)
            dist.shutdown()
            self.say("left")
            os._exit(0)
        except BaseException as error:
            with contextlib.suppress(BaseException):
                self.say("broken", kind=type(error).__name__, text=str(error)[:LONGEST])
                sys.excepthook(type(error), error, error.__traceback__)
            os._exit(70)

    def _meet(self, root: str) -> Any:
        scenario = self.scenario
        if self.is_victim and scenario.scene == "meeting":
            self._strike(None)
        elif self.is_victim and scenario.moment == Moment.MEETING and scenario.fault in DEATHS:
            self._later(scenario.delay * 10)
        try:
            if scenario.face != Face.NUMPY:
                world = faces.join(scenario, self.rank, root)
            else:
                place = {"hostfile": root} if scenario.cabled else {"root": root, "port_base": 0}
                world = dist.init(rank=self.rank, size=scenario.size, **place, **scenario.settings)
        except (*self._errors, OSError) as error:
            self._restore()
            self._tell(error, "meeting")
            return None
        self._restore()
        self.say("met")
        return world

    def _run(self, world: Any) -> None:
        scenario = self.scenario
        endless = itertools.count()
        try:
            for step in range(scenario.steps) if self._ends() else endless:
                self._step(world, step)
        except (*self._errors, MemoryError, OSError) as error:
            self._restore()
            self._tell(error, step)
            if not isinstance(error, self._errors):
                dist.shutdown()  # the program ends
            elif world.failure is None:
                world.abort(str(error))  # others may wait for this rank, which makes no more calls
            return
        self._restore()
        self.say("done", steps=scenario.steps)

    def _ends(self) -> bool:
        """True if the program ends by itself, because the fault may leave it unharmed."""
        return self.scenario.fault in HARMLESS | OPTIONAL

    def _step(self, world: Any, step: int) -> None:
        scenario = self.scenario
        calls = scenario.calls(step)
        here = step == scenario.step and scenario.moment != Moment.MEETING
        away = scenario.fault == Fault.OMIT and self.is_victim
        if scenario.fault in TIMED and step >= scenario.step and not away:
            # A rank whose part of the call is over goes on, and waits in one of the next.
            calls = [replace(call, timeout=OMITTED_TIMEOUT) for call in calls]
            self.say("began")
        if here and away:
            self.say("fault")
            os.read(self._hear, 1)
        if here and scenario.fault == Fault.MISMATCH:
            return self._wrong_step(world, calls[0])
        strikes = here and self.is_victim
        if strikes and scenario.moment == Moment.BETWEEN:
            self._strike(world)
        if strikes and scenario.moment == Moment.INSIDE:
            self._later(scenario.delay, world)
        alone = len(calls) == 1 and scenario.moment != Moment.FLIGHT
        if here and scenario.scene == "split":
            world = world.split(0, self.rank)
        elif here and scenario.scene == "shrink":
            world = world.shrink(timeout=15)
        started = [Started(world, call, wait=alone) for call in calls]
        if strikes and scenario.moment == Moment.FLIGHT:
            self._strike(world)
        for number, each in enumerate(started):
            each.wait()
            self._check(each, step, number)
        return None

    def _wrong_step(self, world: Any, call: Call) -> None:
        scenario = self.scenario
        if self.is_victim:
            call = traffic.other(call, scenario.size, scenario.difference)
            self.say("fault")
        started = Started(world, call, wait=True)
        # A rank whose part is over may return, but not with data of other calls.
        if text := started.fault(scenario.compression):
            self.say("wrong", text=f"the ranks' calls differ, yet {text}"[:LONGEST])

    def _check(self, started: Started, step: int, number: int) -> None:
        if text := started.fault(self.scenario.compression):
            self.say("wrong", text=text[:LONGEST], step=step)
        if self.scenario.compression != "none" and (digest := started.digest()):
            self.say("digest", place=[step, number], digest=digest, call=str(started.call))

    def _later(self, seconds: float, world: Any = None) -> None:
        def strike() -> None:
            time.sleep(seconds)
            self._strike(world)

        threading.Thread(target=strike, daemon=True).start()

    def _strike(self, world: Any) -> None:
        """Commits the fault."""
        fault = self.scenario.fault
        if fault == Fault.FILES:
            self._take_files()
        if self.scenario.is_networked:
            self.say("ready")
            os.read(self._hear, 1)
            return
        self.say("fault")
        if fault == Fault.KILL:
            os.kill(os.getpid(), signal.SIGKILL)
        elif fault == Fault.SEGV:
            faulthandler.disable()
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            ctypes.string_at(8)
        elif fault == Fault.EXIT:
            os._exit(3)
        elif fault in (Fault.STOP, Fault.PAUSE):
            os.kill(os.getpid(), signal.SIGSTOP)
        elif fault == Fault.LEAVE:
            # The end of a Python program whose exception is not caught.
            dist.shutdown()
            self.say("left")
            os._exit(1)
        elif fault in ABORTS:
            world.abort(f"reason {self.scenario.seed}")
        elif fault == Fault.SIZE:
            self._limit(resource.RLIMIT_FSIZE, 1 << 2 * self.scenario.spare)
        elif fault == Fault.MEMORY:
            with open("/proc/self/statm") as file:
                used = int(file.read().split()[0]) * resource.getpagesize()
            self._limit(resource.RLIMIT_AS, used + int(self.scenario.delay * (8 << 30)))

    def _take_files(self) -> None:
        """Leaves a few descriptors to the process."""
        highest = max(map(int, os.listdir("/proc/self/fd")))
        self._limit(resource.RLIMIT_NOFILE, highest + 1 + self.scenario.spare)
        with contextlib.suppress(OSError):
            while True:
                self._files.append(os.open("/dev/null", os.O_RDONLY))
        for _ in range(min(self.scenario.spare, len(self._files))):
            os.close(self._files.pop())

    def _limit(self, kind: int, value: int) -> None:
        soft, hard = resource.getrlimit(kind)
        self._limits.append((kind, (soft, hard)))
        resource.setrlimit(kind, (value, hard))

    def _restore(self) -> None:
        for kind, limits in self._limits:
            resource.setrlimit(kind, limits)
        for file in self._files:
            os.close(file)
        self._limits, self._files = [], []

    def _tell(self, error: BaseException, step: object) -> None:
        self.say("error", kind=type(error).__name__, text=str(error)[:LONGEST], step=step)

    def _recover(self, world: Any) -> None:
        """Goes on with the ranks that are left, if they can."""
        try:
            rest = world.shrink(timeout=15)
            for step in range(1000, 1003):
                for number, call in enumerate(self.scenario.calls(step)):
                    moved = replace(
                        call, root=call.root % rest.size,
                        shift=call.shift % rest.size, count=min(call.count, 1 << 16),
                    )  # fmt: skip
                    if moved.kind == "message" and moved.shift == 0:
                        continue
                    started = Started(rest, moved, wait=True)
                    self._check(started, step, number)
        except dist.Error as error:
            self.say("lost", kind=type(error).__name__, text=str(error)[:LONGEST])
        else:
            self.say("recovered", size=rest.size)
