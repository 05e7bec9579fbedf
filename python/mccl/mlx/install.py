"""Replaces MLX's own backends with MCCL, for programs that do not mention MCCL."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import mlx.core as mx

from . import registry
from .loader import load

#: The operations of mx.distributed; all take a group.
_OPERATIONS = (
    "all_sum",
    "all_max",
    "all_min",
    "all_gather",
    "sum_scatter",
    "send",
    "recv",
    "recv_like",
)

#: MLX's original functions, by name; empty if MCCL is not installed.
_originals: dict[str, Any] = {}


def install() -> None:
    """Replaces `mx.distributed.init` with MCCL's, whose group becomes the operations' default.

    Programs and libraries that call `mx.distributed`, `mlx.nn` and `mlx_lm` then run on MCCL
    unchanged. A name that a module imported earlier (`from mlx.core.distributed import init`) still
    refers to MLX's function. A second call is a no-op; `uninstall()` reverses it.

    Raises:
        ImportError: MLX and this package do not match.
    """
    load()
    if _originals:
        return
    replacements = {name: _with_our_group(getattr(mx.distributed, name)) for name in _OPERATIONS}
    replacements |= {"init": registry.init, "is_available": registry.is_available}
    for name, replacement in replacements.items():
        _originals[name] = getattr(mx.distributed, name)
        setattr(mx.distributed, name, replacement)


def uninstall() -> None:
    """Restores MLX's functions in `mx.distributed`. Existing groups stay usable."""
    for name, original in _originals.items():
        setattr(mx.distributed, name, original)
    _originals.clear()


def is_installed() -> bool:
    """True if `mx.distributed` currently uses MCCL."""
    return bool(_originals)


def _with_our_group(operation: Callable[..., mx.array]) -> Callable[..., mx.array]:
    @functools.wraps(operation)
    def with_our_group(
        *arguments: Any, group: mx.distributed.Group | None = None, **options: Any
    ) -> mx.array:
        chosen = registry.default_group() if group is None else group
        return operation(*arguments, group=chosen, **options)

    return with_our_group
