"""What torch's FSDP asks of a device and torch has not for MPS.

All that FSDP2 does on MPS keeps its order on torch's default stream, and a call of MCCL's is over
when it has been waited for: streams and what waits for them come down to nothing, as for the CPU.
Torch has streams for MPS from 2.15 on, but no events for any but the default one.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any


class Stream:
    """The default one, whatever is asked for."""

    # As torch.Stream has them; the type is c10::DeviceType::MPS.
    stream_id = 0
    device_index = 0
    device_type = 13

    def __init__(self, device: Any = None, priority: int = 0) -> None:
        """Which device and priority is all the same."""

    def wait_stream(self, stream: Stream) -> None:
        """Nothing: what the stream is given runs in its order."""

    def wait_event(self, event: Any) -> None:
        """Nothing: the event is of this stream."""

    def record_event(self, event: Any = None) -> Any:
        """An event behind what the stream has been given."""
        import torch

        event = torch.mps.Event() if event is None else event
        event.record()
        return event

    def synchronize(self) -> None:
        """Until all is done that it has been given."""
        import torch

        torch.mps.synchronize()


_stream = Stream()


def current_stream(device: Any = None) -> Stream:
    """The stream."""
    return _stream


@contextlib.contextmanager
def stream(stream: Stream | None) -> Iterator[None]:
    """What is called inside goes to the stream, as it does outside."""
    yield


def current_device() -> int:
    """The device: a Mac has one."""
    return 0


def set_device(device: Any) -> None:
    """Nothing: a Mac has one device."""


def is_initialized() -> bool:
    """Whether a device has been chosen."""
    return True


#: Of these torch has some from 2.15 on: FSDP2 alone is given them.
_STREAMS = (Stream, current_stream, stream)

#: Given to torch.mps where it has none of that name: meshes of devices ask for them.
_DEVICES = (current_device, set_device, is_initialized)


class _Device:
    """What FSDP2 takes for torch.mps: with streams of this module."""

    def __getattr__(self, name: str) -> Any:
        import torch

        return getattr(torch.mps, name)


for _thing in _STREAMS:
    setattr(_Device, _thing.__name__, staticmethod(_thing))

#: Operators of FSDP2, which have kernels for named devices; MPS is not among them.
_OF_FSDP = ("all_gather_copy_in", "split_with_sizes_copy", "chunk_cat", "copy_")

_kept: list[Any] = []


def complete(shim: Any) -> None:
    """Gives torch what is missing; nothing where there is no MPS. Doing so twice is harmless."""
    if _kept or not _available():
        return
    _complete_device()
    _complete_storages(shim)
    _kept.append(_complete_fsdp())


def _available() -> bool:
    import torch

    return torch.backends.mps.is_available()


def _complete_device() -> None:
    """Each module of FSDP2 asks for a device by a name of its own."""
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
    """FSDP2 frees what it has gathered by making storages empty."""
    import torch

    resize = torch.UntypedStorage.resize_

    def resize_(self: torch.UntypedStorage, size: int) -> torch.UntypedStorage:
        if self.device.type != "mps":
            return resize(self, size)
        shim.resize_storage_of_mps(self, size)
        return self

    torch.UntypedStorage.resize_ = resize_  # type: ignore[method-assign]


def _complete_fsdp() -> Any:
    """They are made of torch's own operators, and do for MPS what they do for the CPU."""
    import torch
    import torch.distributed.fsdp  # makes them

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
