"""Random calls whose results every rank can compute by itself, bit by bit.

Inputs are small integers in every type, so that sums are exact in any order, in 16-bit floats and
after rounding to them.
"""

import math
import random
import zlib
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np

LARGEST = 8 << 20
TYPES = {
    "u1": np.dtype("u1"), "i4": np.dtype("i4"), "i8": np.dtype("i8"), "f2": np.dtype("f2"),
    "bf16": np.dtype(ml_dtypes.bfloat16), "f4": np.dtype("f4"), "f8": np.dtype("f8"),
}  # fmt: skip
#: Codecs after which sums of floats differ from the exact ones, and the largest difference per
#: rank.
ROUNDS = {"int8": 2.0}
DIFFERENCES = ("count", "dtype", "operation", "root", "call")
_ROOTED = ("broadcast", "reduce", "gather", "scatter")
_SUMS = ("all_reduce", "reduce", "reduce_scatter")
#: Calls whose every rank has an array of the same shape, so that a rank can give another one.
_EVEN = ("all_reduce", "reduce", "reduce_scatter")
_SHARED = ("gather", "all_gather", "reduce_scatter", "scatter", "all_to_all")
_COLLECTIVES = (*_SUMS, "all_reduce", "broadcast", "all_gather", "gather", "scatter", "all_to_all",
                "barrier")  # fmt: skip


@dataclass(frozen=True)
class Call:
    kind: str
    #: Elements of a rank's input; of its part in calls that divide an array among the ranks.
    count: int
    dtype: str
    op: str
    root: int
    #: Distance from a sender to its receiver. Only messages use it.
    shift: int
    #: Differs between calls, so that data of another call is noticed.
    salt: int
    timeout: float | None = None

    def __str__(self) -> str:
        return f"{self.kind} of {self.count} {self.dtype}"


def draw_collective(source: random.Random, size: int, smallest: int = 1) -> Call:
    return _sized(source, source.choice(_COLLECTIVES[:-1]), size, smallest, LARGEST)


def draw(source: random.Random, size: int, small: bool) -> Call:
    """Returns a message in a third of the cases, and otherwise a collective."""
    kind = "message" if source.random() < 0.35 else source.choice(_COLLECTIVES)
    return _sized(source, kind, size, 1, LARGEST // 8 if small else LARGEST)


def draw_that_differs(source: random.Random, size: int, difference: str) -> Call:
    """Returns a call that a rank can make differently."""
    kinds = {"count": _EVEN, "operation": _SUMS, "root": _ROOTED, "dtype": _EVEN}
    kind = source.choice(kinds.get(difference, _EVEN))
    return replace(_sized(source, kind, size, 8, LARGEST // 8), op="sum")


def for_framework(call: Call) -> Call:
    """Returns a similar call that torch and MLX have."""
    kinds = ("all_reduce", "broadcast", "all_gather", "message", "barrier")
    return replace(
        call,
        kind=call.kind if call.kind in kinds else "all_reduce",
        dtype=call.dtype if call.dtype in ("u1", "i4", "f4") else "f4",
        count=min(call.count, 1 << 20),
    )


def for_cpp(call: Call) -> Call:
    """Returns a similar call that calls.h has."""
    return replace(
        call,
        dtype="f4" if call.dtype in ("f2", "bf16") else call.dtype,
        count=min(call.count, 1 << 20),
    )


def other(call: Call, size: int, difference: str) -> Call:
    """Returns the call of a rank that differs from `call` in one respect."""
    if difference == "count":
        return replace(call, count=call.count + 1)
    if difference == "dtype":
        return replace(call, dtype="i8" if call.dtype != "i8" else "f4")
    if difference == "operation":
        return replace(call, op="max")
    if difference == "root":
        return replace(call, root=(call.root + 1) % size)
    return replace(call, kind="barrier")


def _sized(source: random.Random, kind: str, size: int, smallest: int, largest: int) -> Call:
    dtype = source.choice(list(TYPES))
    if kind in _SHARED:
        smallest, largest = max(1, smallest // size), largest // size
    octets = math.exp(source.uniform(math.log(smallest), math.log(largest)))
    return Call(
        kind=kind,
        count=max(1, int(octets) // TYPES[dtype].itemsize),
        dtype=dtype,
        op=source.choice(("sum", "sum", "max", "min")),
        root=source.randrange(size),
        shift=source.randrange(1, size) if size > 1 else 0,
        salt=source.randrange(5),
    )


@cache
def _pattern(dtype: str) -> np.ndarray:
    return (np.arange(LARGEST // TYPES[dtype].itemsize + 8) % 13).astype(TYPES[dtype])


def prepare() -> None:
    """Makes the patterns, so that forked processes share them."""
    for dtype in TYPES:
        _pattern(dtype)


def _data(call: Call, count: int, offset: int) -> np.ndarray:
    """Returns the data of rank `offset`, or of the part with that number."""
    return _pattern(call.dtype)[:count] + TYPES[call.dtype].type(offset + call.salt)


class Started:
    """A call in flight. wait() returns the result, or raises the error of the library."""

    def __init__(self, group: Any, call: Call, wait: bool = False) -> None:
        self.call = call
        self._rank, self._size = group.rank, group.size
        self._parts: list[Any] = []
        self._result: Any = None
        self._keep = wait
        self._start(group, {"wait": wait, "timeout": call.timeout})

    def _start(self, group: Any, options: dict) -> None:
        call, rank, size = self.call, self._rank, self._size
        kind, count = call.kind, call.count
        whole = count * size
        empty = lambda n: np.zeros(n, TYPES[call.dtype])  # noqa: E731
        if kind == "message":
            return self._exchange(group, options["timeout"])
        if kind == "barrier":
            answer = group.barrier(**options)
        elif kind == "all_reduce":
            answer = group.all_reduce(_data(call, count, rank), call.op, **options)
        elif kind == "reduce":
            answer = group.reduce(_data(call, count, rank), call.op, call.root, **options)
        elif kind == "broadcast":
            own = _data(call, count, rank) if rank == call.root else empty(count)
            answer = group.broadcast(own, call.root, **options)
        elif kind == "all_gather":
            answer = group.all_gather(_data(call, count, rank), **options)
        elif kind == "gather":
            answer = group.gather(_data(call, count, rank), call.root, **options)
        elif kind == "reduce_scatter":
            answer = group.reduce_scatter(_data(call, whole, rank), call.op, **options)
        elif kind == "scatter":
            own = _data(call, whole, rank) if rank == call.root else None
            answer = group.scatter(own, call.root, out=empty(count), **options)
        else:
            answer = group.all_to_all(_data(call, whole, rank), **options)
        if self._keep:
            self._result = answer
        else:
            self._parts = [answer]
        return None

    def _exchange(self, group: Any, timeout: float | None) -> None:
        call, rank, size = self.call, self._rank, self._size
        out = np.zeros(call.count, TYPES[call.dtype])
        source, target = (rank - call.shift) % size, (rank + call.shift) % size
        received = group.recv(out, source, call.salt, wait=False, timeout=timeout)
        sent = group.send(
            _data(call, call.count, rank), target, call.salt, wait=False, timeout=timeout
        )
        self._parts = [sent, received]
        if self._keep:
            self.wait()

    def wait(self) -> Any:
        for part in self._parts:
            self._result = part.wait()
        self._parts = []
        return self._result

    def expected(self) -> np.ndarray | None:
        call, rank, size = self.call, self._rank, self._size
        count = call.count
        if call.kind == "barrier" or (call.kind in ("reduce", "gather") and rank != call.root):
            return None
        if call.kind == "message":
            return _data(call, count, (rank - call.shift) % size)
        if call.kind == "broadcast":
            return _data(call, count, call.root)
        if call.kind in ("gather", "all_gather"):
            return np.concatenate([_data(call, count, each) for each in range(size)])
        mine = slice(rank * count, (rank + 1) * count)
        if call.kind == "scatter":
            return _data(call, count * size, call.root)[mine]
        if call.kind == "all_to_all":
            return np.concatenate([_data(call, count * size, each)[mine] for each in range(size)])
        whole = _reduced(call, count * size if call.kind == "reduce_scatter" else count, size)
        return whole[mine] if call.kind == "reduce_scatter" else whole

    def fault(self, codec: str) -> str:
        """Returns how the result differs from the expected one, or an empty text."""
        expected = self.expected()
        if expected is None:
            return "" if self._result is None else f"{self.call} returned {self._result!r}"
        found = self._result
        if not isinstance(found, np.ndarray) or found.shape != expected.shape:
            return f"{self.call} returned an array of another shape"
        if np.array_equal(found, expected):
            return ""
        floats = self.call.dtype in ("f2", "bf16", "f4", "f8")
        if codec in ROUNDS and floats and self.call.kind in _SUMS:
            off = np.abs(found.astype("f8") - expected.astype("f8")).max()
            return "" if off <= ROUNDS[codec] * self._size else f"{self.call}: {off} off"
        where = int(np.flatnonzero(found != expected)[0])
        return (
            f"{self.call}: element {where} is {found[where]}, not {expected[where]}; "
            f"{np.count_nonzero(found != expected)} differ"
        )

    def digest(self) -> int:
        """Returns a number that is the same on all ranks of an all_reduce; 0 for other calls."""
        return zlib.crc32(self._result.tobytes()) if self.call.kind == "all_reduce" else 0


def _reduced(call: Call, count: int, size: int) -> np.ndarray:
    if call.op == "max":
        return _data(call, count, size - 1)
    if call.op == "min":
        return _data(call, count, 0)
    number = TYPES[call.dtype].type
    pattern = _pattern(call.dtype)[:count]
    return pattern * number(size) + number(size * call.salt + size * (size - 1) // 2)
