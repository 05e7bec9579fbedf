"""Arrays that calls accept (layouts, scalars, other libraries' memory) and that they reject."""

from __future__ import annotations

import array

import ml_dtypes
import numpy as np
import pytest

import mccl.distributed as dist


@pytest.fixture(scope="module")
def alone():
    """A world of one rank in this process. These tests need no second rank."""
    yield dist.init()
    dist.shutdown()


class Lent:
    """Memory of another library, which supports only DLPack."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values

    def __dlpack__(self, **options):
        return self.values.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.values.__dlpack_device__()


class LentElsewhere(Lent):
    """Memory of another library on a device, which the host cannot read."""

    def __dlpack__(self, **options):
        raise BufferError("lies on a device; copy it to the CPU")


@pytest.mark.parametrize(
    "x",
    [
        np.arange(24).reshape(2, 3, 4).T,
        np.arange(24)[::-3],
        np.broadcast_to(np.float32(2), (3, 4)),
        np.arange(10)[5:5],
        np.zeros((0, 3)),
        np.zeros((3, 0, 2)),
        np.array(7.5),
        np.float16(3),
        5,
        2.5,
        1 + 2j,
        True,
        [[1, 2], [3, 4]],
        np.frombuffer(b"\0\1\2\3\4\5\6\7\0", "u1")[1:].view("i4"),
        np.ma.array([1, 2, 3])[1:],
    ],
    ids=str,
)
def test_everything_that_numpy_accepts_is_accepted(alone, x):
    found = alone.all_reduce(x)
    assert type(found) is np.ndarray
    assert found.dtype == np.asarray(x).dtype
    assert np.array_equal(found, x)
    assert not np.shares_memory(found, np.asarray(x))


@pytest.mark.parametrize(
    "lent",
    [b"abc", bytearray(b"abc"), memoryview(b"abc")],
    ids=lambda lent: type(lent).__name__,
)
def test_bytes_are_small_numbers(alone, lent):
    found = alone.all_reduce(lent)
    assert found.dtype == np.uint8
    assert found.tobytes() == b"abc"


def test_the_result_is_the_given_out(alone):
    for out in (
        np.zeros(3, "f4"),
        array.array("f", [0] * 3),
        memoryview(array.array("f", [0] * 3)),
    ):
        assert alone.all_reduce(np.array([1, 2, 3], "f4"), out=out) is out
        assert list(out) == [1, 2, 3]
    out = bytearray(3)
    assert alone.recv.__doc__
    assert alone.all_reduce(b"xyz", "max", out) is out
    assert out == b"xyz"


@pytest.mark.parametrize("name", ["bool", "int8", "uint64", "float16", "float64", "complex128"])
@pytest.mark.parametrize("turned", [False, True])
def test_dlpack(alone, name, turned):
    values = (np.arange(6).reshape(2, 3) % 2).astype(name)
    x = Lent(values.T if turned else values)
    found = alone.all_reduce(x, "max" if name != "complex128" else "sum")
    assert type(found) is np.ndarray
    assert found.dtype == values.dtype
    assert np.array_equal(found, x.values)


def test_dlpack_as_out(alone):
    out = Lent(np.zeros((2, 3), "f8"))
    assert alone.all_reduce(np.ones((2, 3)), out=out) is out
    assert (out.values == 1).all()
    with pytest.raises(dist.InvalidArgument, match="not in C order"):
        alone.all_reduce(np.ones((2, 3)), out=Lent(np.zeros((3, 2)).T))


def test_dlpack_says_why_it_cannot_lend(alone):
    with pytest.raises(BufferError, match="copy it to the CPU"):
        alone.all_reduce(LentElsewhere(np.ones(3)))


def test_bfloat16(alone):
    x = np.arange(4).astype(ml_dtypes.bfloat16)
    found = alone.all_reduce(x[::2])
    assert found.dtype == ml_dtypes.bfloat16
    assert found.tolist() == [0, 2]
    assert alone.broadcast(x, out=x) is x


@pytest.mark.parametrize(
    ("out", "says"),
    [
        (np.zeros((2, 4))[:, :3], r"out of shape \(2, 3\) is not in C order"),
        (np.zeros((2, 3), order="F"), "not in C order"),
        (np.broadcast_to(0.0, (2, 3)), "not in C order"),
        (np.zeros(6), r"out is float64 of shape \(6,\); expected float64 of shape \(2, 3\)"),
        (np.zeros((2, 3), "f4"), r"out is float32 of shape \(2, 3\); expected float64"),
        (np.zeros((2, 3), ">f8"), "dtype of the array is >f8"),
        (np.float64(1), "out is a float64; expected an array"),
        ([0.0] * 6, "out is a list; expected an array"),
        (b"123456", "out is read-only"),
    ],
    ids=str,
)
def test_an_out_of_wrong_shape_or_dtype_is_refused(alone, out, says):
    with pytest.raises(dist.InvalidArgument, match="all_reduce: .*" + says):
        alone.all_reduce(np.ones((2, 3)), out=out)


def test_an_out_that_is_read_only(alone):
    out = np.zeros(3)
    out.flags.writeable = False
    with pytest.raises(dist.InvalidArgument, match="out is read-only"):
        alone.all_reduce(np.ones(3), out=out)


@pytest.mark.parametrize(
    "x",
    [
        "text",
        object(),
        np.zeros(3, "M8[s]"),
        np.zeros(3, ">i4"),
        np.zeros(3, "S4"),
        np.zeros(3, [("a", "f4")]),
        np.zeros(3, np.longdouble),
        np.zeros(3, ml_dtypes.float8_e4m3fn),
        np.array([1, "a"], object),
    ],
    ids=lambda x: str(getattr(x, "dtype", x))[:20],
)
def test_unsupported_dtypes_are_refused(alone, x):
    with pytest.raises(
        dist.InvalidArgument, match=r"all_reduce: the dtype of the array is .*; expected bool"
    ):
        alone.all_reduce(x)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda w, x: w.all_reduce(x, "mean"), 'op is \'mean\'; expected one of "sum", "avg"'),
        (lambda w, x: w.all_reduce(x, "premul_sum"), "op is 'premul_sum'"),
        (lambda w, x: w.all_reduce(x, ("sum", 2)), "op is"),
        (lambda w, x: w.all_reduce(x, 3), "op is 3"),
        (lambda w, x: w.all_reduce(x, "bxor"), "bxor is not defined for f64"),
        (
            lambda w, x: w.broadcast(x, 1),
            r"broadcast: root 1 is not a rank of this group \(0 to 0\)",
        ),
        (lambda w, x: w.reduce(x, root=-1), "reduce: root -1"),
        (lambda w, x: w.gather(x, 7), "gather: root 7"),
        (lambda w, x: w.scatter(x, 7), "scatter: root 7"),
        (lambda w, x: w.scatter(None), "scatter: x is None on rank 0"),
        (lambda w, x: w.broadcast(None), "neither x nor out is given"),
        (lambda w, x: w.reduce_scatter(1.0), "x is a scalar; expected an array with an axis"),
        (lambda w, x: w.all_to_all(x, in_counts=[4]), "pass both in_counts and out_counts"),
        (lambda w, x: w.all_to_all(x, x), "no in-place form"),
        (
            lambda w, x: w.all_gather(x, counts=[1, 2]),
            "counts has 2 numbers; expected one for each",
        ),
        (
            lambda w, x: w.all_gather(x, counts=[-4]),
            "counts contains -4; every number of rows must be at least 0",
        ),
        (lambda w, x: w.all_gather(x, counts=[3]), "x has 4 rows .* expected 3"),
        (lambda w, x: w.reduce_scatter(x, counts=[5]), "x has 4 rows .* expected 5"),
        (lambda w, x: w.send(x, 0), "cannot exchange messages with itself"),
        (lambda w, x: w.send(x, 3), "rank 3 is not in this group"),
        (lambda w, x: w.recv(x, 3), "rank 3 is not in this group"),
        (lambda w, x: w.recv(x, -1), "rank -1 is not in this group .* pass None"),
        (lambda w, x: w.send(x, 3, -1), "send: tag is -1; expected 0 to 4294967295"),
        (lambda w, x: w.barrier(timeout=0), "timeout is 0; expected seconds above 0"),
        (lambda w, x: w.barrier(timeout=float("nan")), "timeout is nan"),
        (lambda w, x: w.all_reduce(x[:3], out=x[1:]), "overlap"),
    ],
)
def test_wrong_arguments(alone, call, says):
    with pytest.raises(dist.InvalidArgument, match=says):
        call(alone, np.ones(4))
    assert alone.failure is None
    assert alone.all_reduce(1) == 1


@pytest.mark.parametrize(
    "call",
    [
        lambda w: w.all_reduce(1, wait="no"),
        lambda w: w.all_reduce(1, timeout="soon"),
        lambda w: w.all_gather([1], counts=["1"]),
        lambda w: w.all_gather([1], counts=3),
        lambda w: w.broadcast(1, root="0"),
        lambda w: w.send(1, 0, 2**70),
        lambda w: w.recv(bytearray(3), "0"),
        lambda w: w.all_reduce(),
        lambda w: w.all_reduce(None),
        lambda w: w.all_reduce(1, None),
        lambda w: w.all_reduce(1, "sum", None, True),
    ],
)
def test_wrong_types(alone, call):
    with pytest.raises((TypeError, OverflowError)):
        call(alone)


def test_a_timeout_that_is_no_number(alone):
    with pytest.raises(TypeError, match="all_reduce: timeout is 'soon'; expected seconds above 0"):
        alone.all_reduce(1, timeout="soon")


def check_templates(world) -> None:
    """Ranks whose values are not used may pass only out=."""
    root, rank = world.size - 1, world.rank
    out = np.empty((2, 2), "i4")
    x = np.full((2, 2), 9, "i4") if rank == root else None
    assert world.broadcast(x, root, out) is out
    assert (out == 9).all()
    out[:] = rank
    world.broadcast(None, root, out)
    assert (out == root).all()
    whole = np.arange(world.size * 2).reshape(world.size, 2) if rank == root else None
    assert world.scatter(whole, root, np.empty((1, 2), "i8"))[0, 1] == 2 * rank + 1
    with pytest.raises(dist.InvalidArgument, match=r"not a multiple of \d ranks; use counts="):
        world.reduce_scatter(np.ones(world.size + 1))
    with pytest.raises(dist.InvalidArgument, match=r"not a multiple of \d ranks; use counts="):
        world.all_to_all(np.ones(world.size + 1))
    assert world.all_reduce(1) == world.size


def test_an_out_is_a_template(pool):
    pool.run(check_templates)
