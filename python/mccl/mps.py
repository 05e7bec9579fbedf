"""Adds the functions that torch's FSDP needs from a device and that torch lacks for MPS.

All work of FSDP2 on MPS runs in torch's default stream, and waiting for a call of MCCL blocks until
the call is complete. So waits between streams are no-ops here, as on the CPU. Torch has streams for
MPS from 2.15 on, but events only for the default stream.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any


class Stream:
    """Represents torch's default MPS stream; every instance is the same stream."""

    # Attributes of torch.Stream; the type is c10::DeviceType::MPS.
    stream_id = 0
    device_index = 0
    device_type = 13

    def __init__(self, device: Any = None, priority: int = 0) -> None:
        """Ignores the device and the priority."""

    def wait_stream(self, stream: Stream) -> None:
        """No-op: all work is in one stream and runs in order."""

    def wait_event(self, event: Any) -> None:
        """No-op: the event belongs to this stream."""

    def record_event(self, event: Any = None) -> Any:
        """Records an event after all work that is queued in the stream."""
        import torch

        event = torch.mps.Event() if event is None else event
        event.record()
        return event

    def synchronize(self) -> None:
        """Blocks until the stream has finished its work."""
        import torch

        torch.mps.synchronize()


_stream = Stream()


def current_stream(device: Any = None) -> Stream:
    """Returns the only stream."""
    return _stream


@contextlib.contextmanager
def stream(stream: Stream | None) -> Iterator[None]:
    """No-op context: calls inside use the only stream, as they do outside."""
    yield


def current_device() -> int:
    """Returns 0: a Mac has one device."""
    return 0


def set_device(device: Any) -> None:
    """No-op: a Mac has one device."""


def is_initialized() -> bool:
    """Returns True: no initialisation is needed."""
    return True


#: Used by FSDP2 only, and not added to torch.mps, because torch has its own streams from 2.15 on.
_STREAMS = (Stream, current_stream, stream)

#: Functions that torch's device meshes call; added to torch.mps if torch lacks them.
_DEVICES = (current_device, set_device, is_initialized)


class _Device:
    """Replaces torch.mps in FSDP2: has the streams of this module, and the rest of torch.mps."""

    def __getattr__(self, name: str) -> Any:
        import torch

        return getattr(torch.mps, name)


for _thing in _STREAMS:
    setattr(_Device, _thing.__name__, staticmethod(_thing))

#: Operators of FSDP2 for which torch may have no MPS kernel.
_OF_FSDP = ("all_gather_copy_in", "split_with_sizes_copy", "chunk_cat", "copy_")

_kept: list[Any] = []


def complete(shim: Any) -> None:
    """Adds the missing parts to torch; no-op without MPS, or on a second call."""
    if _kept or not _available():
        return
    _complete_device()
    _complete_storages(shim)
    _kept.append(_complete_fsdp())


def _available() -> bool:
    import torch

    return torch.backends.mps.is_available()


def _complete_device() -> None:
    """Replaces the function from which each module of FSDP2 gets the functions of a device."""
    import torch
    import torch.distributed.fsdp._fully_shard as package

    for thing in _DEVICES:
        if not hasattr(torch.mps, thing.__name__):
            setattr(torch.mps, thing.__name__, thing)

    device = _Device()
    for name, module in list(sys.modules.items()):
        ask = getattr(module, "_get_device_handle", None)
        if ask is None or not name.startswith(package.__name__):
            continue

        def answer(device_type: str = "cuda", *, _ask: Any = ask) -> Any:
            return device if device_type == "mps" else _ask(device_type)

        module._get_device_handle = answer  # type: ignore[attr-defined]


def _complete_storages(shim: Any) -> None:
    """Makes storages on MPS resizable: FSDP2 frees gathered tensors by emptying their storages."""
    import torch

    resize = torch.UntypedStorage.resize_

    def resize_(self: torch.UntypedStorage, size: int) -> torch.UntypedStorage:
        if self.device.type != "mps":
            return resize(self, size)
        shim.resize_storage_of_mps(self, size)
        return self

    torch.UntypedStorage.resize_ = resize_  # type: ignore[method-assign]


def _complete_fsdp() -> Any:
    """Registers the CPU kernels for MPS too, because they only call torch's own operators."""
    import torch
    import torch.distributed.fsdp  # Registers the operators.

    library = torch.library.Library("fsdp", "IMPL")
    on_the_cpu = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
    for name in _OF_FSDP:
        packet = getattr(torch.ops.fsdp, name, None)
        if packet is None or torch._C._dispatch_has_kernel_for_dispatch_key(f"fsdp::{name}", "MPS"):
            continue

        def kernel(*args: Any, _operator: Any = packet.default, **kwargs: Any) -> Any:
            return _operator.redispatch(on_the_cpu, *args, **kwargs)

        library.impl(name, kernel, "MPS")
    return library
