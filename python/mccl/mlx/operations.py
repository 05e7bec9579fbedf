"""What MLX has no function for, over groups of mccl.mlx.

All are lazy: they communicate when their result is evaluated, in the order of evaluation, which
must be the same on every rank. *Rows* are slices along axis 0. All but `barrier` can be
differentiated (`mx.grad`, `mx.vjp`, `mx.jvp`) and mapped over (`mx.vmap`; the mapped axis becomes
part of each row).

Gradients are those of the sum of all ranks' losses: what a rank gets for its input is how that sum
changes with it, whichever rank's loss it reaches. `mx.distributed.all_sum` and `all_gather` follow
another rule: each rank's gradient is that of its own loss, as if every rank computed the same one.

Arguments that all have in common:
    group: One that `mccl.mlx.init()` or its `split` made; None: the default group.
    stream: Where it runs, a stream of the CPU; None: this thread's default stream of the CPU.

In a group of one, each returns `x`. A wrong argument raises ValueError when the call is made, or
TypeError where it is of another type; ranks whose calls do not fit each other, and ranks that are
gone, raise RuntimeError on every rank when the result is evaluated.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import mlx.core as mx

from .loader import load
from .registry import group_of_call

if TYPE_CHECKING:
    Group = mx.distributed.Group
    StreamOrDevice = Any

Rows = Sequence[int] | None


def all_sum(x: mx.array, *, group: Group | None = None, stream: StreamOrDevice = None) -> mx.array:
    """The sum of every rank's `x`, of any one shape. Its gradient is the sum of all gradients."""
    return _exchange("all_sum", x, group, stream)


def all_mean(x: mx.array, *, group: Group | None = None, stream: StreamOrDevice = None) -> mx.array:
    """The mean of every rank's `x`, of any one shape; of integers, truncated toward zero."""
    return _exchange("all_mean", x, group, stream)


def broadcast(
    x: mx.array, root: int = 0, *, group: Group | None = None, stream: StreamOrDevice = None
) -> mx.array:
    """Root's `x` on every rank.

    Args:
        x: On the other ranks, an array of the same shape and type, whose values do not matter.
        root: Whose array it is.
        group: See this module.
        stream: See this module.
    """
    return _exchange("broadcast", x, group, stream, root=root)


def reduce(
    x: mx.array, root: int = 0, *, group: Group | None = None, stream: StreamOrDevice = None
) -> mx.array:
    """The sum of every rank's `x` on root, and zeros on the others."""
    return _exchange("reduce", x, group, stream, root=root)


def all_gather(
    x: mx.array,
    rows: Rows = None,
    *,
    group: Group | None = None,
    stream: StreamOrDevice = None,
) -> mx.array:
    """Every rank's rows, in rank order, on every rank.

    Args:
        x: This rank's rows; a scalar counts as one row.
        rows: How many rows each rank has, the same on all ranks; None: as many as this one.
        group: See this module.
        stream: See this module.
    """
    group = _group_for("all_gather", x, group)
    x = x.reshape(1) if x.ndim == 0 and group.size() > 1 else x
    return _exchange("all_gather", x, group, stream, rows=_rows_of_each(x, rows, group))


def sum_scatter(
    x: mx.array,
    rows: Rows = None,
    *,
    group: Group | None = None,
    stream: StreamOrDevice = None,
) -> mx.array:
    """This rank's rows of the sum of every rank's `x`.

    Args:
        x: As many rows as all ranks get together.
        rows: How many rows each rank gets, the same on all ranks; None: equal shares.
        group: See this module.
        stream: See this module.
    """
    group = _group_for("sum_scatter", x, group)
    return _exchange("sum_scatter", x, group, stream, rows=_shares(x, rows, group, "sum_scatter"))


def gather(
    x: mx.array,
    root: int = 0,
    rows: Rows = None,
    *,
    group: Group | None = None,
    stream: StreamOrDevice = None,
) -> mx.array:
    """Every rank's rows on root, in rank order; an array of no rows on the others.

    Args:
        x: This rank's rows; a scalar counts as one row.
        root: Who gets them.
        rows: How many rows each rank has, the same on all ranks; None: as many as this one.
        group: See this module.
        stream: See this module.
    """
    group = _group_for("gather", x, group)
    x = x.reshape(1) if x.ndim == 0 and group.size() > 1 else x
    return _exchange("gather", x, group, stream, root=root, rows=_rows_of_each(x, rows, group))


def scatter(
    x: mx.array,
    root: int = 0,
    rows: Rows = None,
    *,
    group: Group | None = None,
    stream: StreamOrDevice = None,
) -> mx.array:
    """This rank's rows of root's `x`.

    Args:
        x: On the other ranks, an array of the same type and shape, whose values do not matter; with
            `rows` it may have any number of rows there, such as none.
        root: Whose array it is.
        rows: How many rows each rank gets, the same on all ranks; None: equal shares.
        group: See this module.
        stream: See this module.
    """
    group = _group_for("scatter", x, group)
    shares = _shares(x, rows, group, "scatter")
    return _exchange("scatter", x, group, stream, root=root, rows=shares)


def all_to_all(
    x: mx.array,
    rows_to: Rows = None,
    rows_from: Rows = None,
    *,
    group: Group | None = None,
    stream: StreamOrDevice = None,
) -> mx.array:
    """Rows for every rank out, rows from every rank in, both in rank order.

    Args:
        x: The rows for rank 0, then those for rank 1, and so on.
        rows_to: How many of them go to each rank; None: equal shares.
        rows_from: How many come from each rank: what that rank has in its `rows_to` for this one.
            Give both or neither.
        group: See this module.
        stream: See this module.
    """
    group = _group_for("all_to_all", x, group)
    if (rows_to is None) != (rows_from is None):
        raise ValueError("all_to_all: give both rows_to and rows_from, or neither")
    shares = _shares(x, rows_to, group, "all_to_all")
    return _exchange("all_to_all", x, group, stream, rows=shares, rows_from=rows_from or shares)


def barrier(group: Group | None = None) -> None:
    """Returns when every rank has called it.

    It is not lazy. What was evaluated before, on whatever stream, has communicated by then; what
    was only recorded has not.
    """
    load().barrier(group_of_call("barrier", group))


def _exchange(
    kind: str,
    x: mx.array,
    group: Group | None,
    stream: StreamOrDevice,
    *,
    root: int = 0,
    rows: Sequence[int] = (),
    rows_from: Sequence[int] = (),
) -> mx.array:
    group = _group_for(kind, x, group)
    if not hasattr(root, "__index__"):
        raise TypeError(f"{kind}: root: expected a rank; found {type(root).__name__} {root!r:.60}")
    shim = load()
    return shim.exchange(
        x,
        group=group,
        kind=getattr(shim.ExchangeKind, kind),
        root=root,
        rows=list(rows),
        rows_from=list(rows_from),
        stream=stream,
    )


def _group_for(call: str, x: object, group: object) -> Group:
    """The group of a call on an array."""
    if not isinstance(x, mx.array):
        raise TypeError(f"{call}: x: expected an mlx.core.array; found {type(x).__name__}")
    return group_of_call(call, group)


def _rows_of_each(x: mx.array, rows: Rows, group: Group) -> Sequence[int]:
    if rows is not None:
        return rows
    return [x.shape[0] if x.ndim > 0 else 1] * group.size()


def _shares(x: mx.array, rows: Rows, group: Group, call: str) -> Sequence[int]:
    if rows is not None:
        return rows
    size = group.size()
    if x.ndim == 0 or x.shape[0] % size != 0:
        raise ValueError(
            f"{call}: {size} ranks do not divide axis 0 of shape {tuple(x.shape)}; say how many "
            "rows each rank has, or pad the array"
        )
    return [x.shape[0] // size] * size
