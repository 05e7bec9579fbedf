"""Averages gradients over ranks, in buckets, while later buckets are still being computed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import mlx.core as mx
from mlx.utils import tree_flatten, tree_unflatten

from .compression import Compression
from .loader import load
from .operations import all_mean, all_sum
from .registry import group_of_call

if TYPE_CHECKING:
    Stream = mx.Stream | mx.ThreadLocalStream

#: Default size of a bucket in bytes.
BUCKET = 32 * 1024**2


def average_gradients(
    gradients: Any,
    group: mx.distributed.Group | None = None,
    all_reduce_size: int = BUCKET,
    communication_stream: Stream | None = None,
    *,
    overlap: bool = True,
    compression: Compression | str | None = None,
) -> Any:
    """The mean of every rank's gradients, as a tree of the same structure.

    Accepts the arguments of `mlx.nn.average_gradients`. Gradients are packed into buckets, each of
    one element type, from the end of the tree to its start: the order in which a backward pass
    produces them. With `overlap`, the evaluation of each bucket starts immediately, so that one
    bucket is sent while the next is computed. Inside `mx.compile` and other transformations,
    nothing is evaluated early, and the graph decides the order.

    Args:
        gradients: A tree of arrays, of the same structure, shapes and types on every rank.
        group: The ranks to average over; None: the default group.
        all_reduce_size: Bytes after which a bucket is full; 0 or less: one array per bucket.
        communication_stream: The stream for communication; None: a separate stream on the CPU.
        overlap: Whether evaluation starts in this call.
        compression: How gradients between machines are rounded. A `Compression` adds what rounding
            drops to the next step. With the name of a codec, that part is lost. None: the setting
            `compression` applies.

    Raises:
        TypeError: A leaf of the tree is not an array; the message contains its name.
        ValueError: An unknown codec (with the nearest name); a `Compression` inside `mx.compile` or
            another transformation, where it cannot keep anything; a GPU stream where none is
            possible; or a group that mccl.mlx did not make.
        RuntimeError: At evaluation: ranks passed different trees, or a rank has died.
    """
    group = group_of_call("average_gradients", group)
    flat: list[tuple[str, mx.array]] = tree_flatten(gradients)
    for name, leaf in flat:
        if not isinstance(leaf, mx.array):
            raise TypeError(
                f"average_gradients: {name or 'gradients'}: expected an array; found "
                f"{type(leaf).__name__} {leaf!r:.60}"
            )
    if group.size() == 1 or not flat:
        return gradients
    stream = own_stream() if communication_stream is None else communication_stream
    arrays = [array for _, array in flat]
    traced = any(map(load().is_tracer, arrays))
    overlap = overlap and not traced
    averaged: dict[int, mx.array] = {}
    if compression is not None:
        kept = Compression(compression) if isinstance(compression, str) else compression
        if traced and kept is compression:
            raise ValueError(
                "average_gradients: a Compression keeps rounding errors across steps, which a "
                "compiled or transformed function cannot do; call average_gradients outside, or "
                "pass only the name of the codec"
            )
        averaged = _rounded_means(
            dict(enumerate(flat)), group, stream, all_reduce_size, kept, keeps=kept is compression
        )
        if overlap:
            mx.async_eval(*averaged.values())
    exact = [i for i in range(len(arrays)) if i not in averaged]
    for places in buckets_of([arrays[i] for i in exact], all_reduce_size):
        bucket = [exact[place] for place in places]
        mean = _mean_of([arrays[i] for i in bucket], group, stream, compression)
        if overlap:
            mx.async_eval(mean)
        averaged.update(zip(bucket, _apart(mean, [arrays[i] for i in bucket]), strict=True))
    return tree_unflatten([(key, averaged[i]) for i, (key, _) in enumerate(flat)])


def buckets_of(arrays: Sequence[mx.array], size: int) -> Iterator[list[int]]:
    """Yields the indices of arrays to send together: of one type, from the last to the first.

    A bucket is full once it has at least `size` bytes.
    """
    filling: dict[mx.Dtype, list[int]] = {}
    bytes_in: dict[mx.Dtype, int] = {}
    for index in reversed(range(len(arrays))):
        array = arrays[index]
        filling.setdefault(array.dtype, []).append(index)
        bytes_in[array.dtype] = bytes_in.get(array.dtype, 0) + array.nbytes
        if bytes_in[array.dtype] >= size:
            yield filling.pop(array.dtype)
            bytes_in[array.dtype] = 0
    yield from filling.values()


def _rounded_means(
    gradients: dict[int, tuple[str, mx.array]],
    group: mx.distributed.Group,
    stream: Stream,
    size: int,
    compression: Compression,
    keeps: bool,
) -> dict[int, mx.array]:
    """Returns the means of those gradients that compression rounds, by index."""
    chosen = [i for i, (name, gradient) in gradients.items() if compression.rounds(name, gradient)]
    share = compression.share
    compression.step += 1
    wanted = [compression.with_residual(*gradients[i]) for i in chosen]
    averaged: dict[int, mx.array] = {}
    left_out: dict[str, mx.array] = {}
    finite = mx.array(True)
    for places in buckets_of(wanted, size):
        some = [wanted[place] for place in places]
        mean, left = load().rounded_mean(_together(some), group, compression.codec, share, stream)
        for i, average, rest in zip(
            [chosen[place] for place in places], _apart(mean, some), _apart(left, some), strict=True
        ):
            name, gradient = gradients[i]
            averaged[i] = average.astype(gradient.dtype)
            if keeps:
                # The sum is finite only if all elements are. In 16 bits, the sum could overflow.
                wide = averaged[i].astype(average.dtype)
                finite = finite & mx.isfinite(mx.sum(wide))
            left_out[name] = rest
    if not averaged or not keeps:
        return averaged
    compression.keep(left_out, finite)
    # Evaluates the residuals with the means, because unevaluated residuals would keep the memory of
    # the means alive.
    means = mx.depends(list(averaged.values()), [compression.residuals[n] for n in left_out])
    return dict(zip(averaged, means, strict=True))


def _together(arrays: Sequence[mx.array]) -> mx.array:
    if len(arrays) == 1:
        return arrays[0]
    return mx.concatenate([array.reshape(-1) for array in arrays])


def _mean_of(
    arrays: Sequence[mx.array],
    group: mx.distributed.Group,
    stream: Stream,
    compression: Compression | str | None,
) -> mx.array:
    """Returns the mean over ranks of the arrays, concatenated in one array.

    The mean is exact if `compression` is given. Without it, the setting `compression` applies.
    """
    together = _together(arrays)
    floats = mx.issubdtype(together.dtype, mx.floating)
    if compression is not None and floats:
        return load().rounded_mean(together, group, "none", 1.0, stream)[0]
    if mx.issubdtype(together.dtype, mx.inexact):
        return all_mean(together, group=group, stream=stream)
    return all_sum(together, group=group, stream=stream) / group.size()


def _apart(mean: mx.array, like: Sequence[mx.array]) -> list[mx.array]:
    if len(like) == 1:
        return [mean]
    ends, end = [], 0
    for array in like[:-1]:
        end += array.size
        ends.append(end)
    parts = mx.split(mean, ends)
    return [part.reshape(array.shape) for part, array in zip(parts, like, strict=True)]


@cache
def own_stream() -> Stream:
    """Returns a stream for communication; each calling thread has its own."""
    return mx.new_thread_local_stream(mx.cpu)
