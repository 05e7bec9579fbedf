"""Operations that MLX lacks, over groups of mccl.mlx.

All except `barrier` are lazy: they communicate when their result is evaluated. The order of
evaluation must be the same on every rank. *Rows* are slices along axis 0. All except `barrier` can
be differentiated (`mx.grad`, `mx.vjp`, `mx.jvp`) and mapped over (`mx.vmap`; the mapped axis
becomes part of each row).

The gradient of a rank's input is the derivative of the sum of all ranks' losses. In contrast,
`mx.distributed.all_sum` and `all_gather` return the gradient of the rank's own loss, as if all
ranks computed the same loss.

Arguments of all operations:
    group: A group from `mccl.mlx.init()` or its `split`; None: the default group.
    stream: The stream to run on, of the CPU or, for collectives without a root in a group on the
        GPU, of the GPU; None: this thread's default stream of that device.

In a group of one rank, each operation returns `x`. A call with a wrong argument raises ValueError,
or TypeError if the argument has the wrong type. If the calls of ranks do not match, or a rank has
died, every rank raises RuntimeError when the result is evaluated.
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
    """The sum of every rank's `x`, of any shape. Its gradient is the sum of all gradients."""
    return _exchange("all_sum", x, group, stream)


def all_mean(x: mx.array, *, group: Group | None = None, stream: StreamOrDevice = None) -> mx.array:
    """The mean of every rank's `x`, which may have any shape. Truncates integers toward zero."""
    return _exchange("all_mean", x, group, stream)


def broadcast(
    x: mx.array, root: int = 0, *, group: Group | None = None, stream: StreamOrDevice = None
) -> mx.array:
    """Root's `x` on every rank.

    Args:
        x: On other ranks, an array of the same shape and type, whose values are ignored.
        root: The rank whose array is sent.
        group: See this module.
        stream: See this module.
    """
    return _exchange("broadcast", x, group, stream, root=root)


def reduce(
    x: mx.array, root: int = 0, *, group: Group | None = None, stream: StreamOrDevice = None
) -> mx.array:
    """The sum of every rank's `x` on root, and zeros on the other ranks."""
    return _exchange("reduce", x, group, stream, root=root)


def all_gather(
    x: mx.array,
    rows: Rows = None,
    *,
    group: Group | None = None,
    stream: StreamOrDevice = None,
) -> mx.array:
    """The rows of all ranks, in rank order, on every rank.

    Args:
        x: This rank's rows; a scalar counts as one row.
        rows: Number of rows of each rank, the same on all ranks; None: as many as this rank has.
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
        x: An array with as many rows as all ranks receive together.
        rows: Number of rows that each rank receives, the same on all ranks; None: equal shares.
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
    """The rows of all ranks on root, in rank order; an array without rows on the other ranks.

    Args:
        x: This rank's rows; a scalar counts as one row.
        root: The rank that receives the rows.
        rows: Number of rows of each rank, the same on all ranks; None: as many as this rank has.
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
        x: On other ranks, an array of the same type and shape, whose values are ignored. With
            `rows`, it may have any number of rows there, including none.
        root: The rank whose array is sent.
        rows: Number of rows that each rank receives, the same on all ranks; None: equal shares.
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
    """Sends rows to every rank, and returns the rows received from all ranks in rank order.

    Args:
        x: The rows for rank 0, then those for rank 1, and so on.
        rows_to: Number of rows for each rank; None: equal shares.
        rows_from: Number of rows from each rank, equal to that rank's `rows_to` for this rank.
            Give both `rows_to` and `rows_from`, or neither.
        group: See this module.
        stream: See this module.
    """
    group = _group_for("all_to_all", x, group)
    if (rows_to is None) != (rows_from is None):
        raise ValueError("all_to_all: pass both rows_to and rows_from, or neither")
    shares = _shares(x, rows_to, group, "all_to_all")
    return _exchange("all_to_all", x, group, stream, rows=shares, rows_from=rows_from or shares)


def barrier(group: Group | None = None) -> None:
    """Blocks until every rank has called it.

    barrier() is not lazy. When it returns, all operations that were evaluated before it, on any
    stream, have communicated. Operations that are not evaluated yet have not.
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
    """Returns the group of a call on an array. Raises TypeError if `x` is not an array."""
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
            f"{call}: axis 0 of shape {tuple(x.shape)} is not a multiple of {size} ranks; pass "
            "the number of rows of each rank, or pad the array"
        )
    return [x.shape[0] // size] * size
