"""Runs each peer's sends and receives in separate streams, to avoid deadlocks.

A stream of MLX runs its operations one after another. If two ranks both evaluate a receive from
each other before a send on the same stream, neither send starts, and both wait forever.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import mlx.core as mx

#: Position and name of the peer argument of each operation.
_PEERS = {"send": (1, "dst"), "recv": (2, "src"), "recv_like": (1, "src")}


def separate(is_ours: Callable[[mx.distributed.Group], bool]) -> None:
    """Makes `send`, `recv` and `recv_like` of `mx.distributed` use a separate stream for each peer.

    Applies only to groups for which `is_ours` is true, and only if the caller passes no stream.
    """
    for name, (position, keyword) in _PEERS.items():
        operation = getattr(mx.distributed, name)
        setattr(mx.distributed, name, _separated(operation, position, keyword, is_ours))


def _separated(
    operation: Callable[..., mx.array],
    position: int,
    keyword: str,
    is_ours: Callable[[mx.distributed.Group], bool],
) -> Callable[..., mx.array]:
    sends = keyword == "dst"

    @functools.wraps(operation)
    def on_own_stream(*arguments: Any, **options: Any) -> mx.array:
        group = options.get("group")
        if group is not None and options.get("stream") is None and is_ours(group):
            peer = arguments[position] if len(arguments) > position else options.get(keyword)
            if isinstance(peer, int) and 0 <= peer < group.size():
                options["stream"] = _stream(sends, peer)
        return operation(*arguments, **options)

    return on_own_stream


@functools.cache
def _stream(sends: bool, peer: int) -> mx.ThreadLocalStream:
    """Returns the stream for a peer and a direction; each calling thread has its own."""
    return mx.new_thread_local_stream(mx.cpu)
