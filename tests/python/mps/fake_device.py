"""Loads the double of a Mac's GPU into this process."""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / os.environ.get("BUILD_FOLDER", "build/release") / "tests" / "python"


def load() -> ModuleType:
    """Imports the double.

    It replaces the Metal driver of mccl's extension, which is loaded first.
    """
    import torch

    from mccl import torch_backend

    torch_backend.load()
    if str(FOLDER) not in sys.path:
        sys.path.insert(0, str(FOLDER))
    fake = importlib.import_module("fake_mps")
    # torch's Python code asks these functions of a build for Macs. torch 2.15 uses attributes that
    # only a cached function has.
    torch.backends.mps.is_available = functools.cache(lambda: True)
    if hasattr(torch.mps, "default_stream"):  # new in torch 2.15, in C++ that Linux builds lack
        torch.mps.current_stream = torch.mps.default_stream = functools.cache(object)
    return fake


def start(shared: bool) -> None:
    """Loads the double with one kind of memory: torch 2.12 and newer share it with the host."""
    load().set_shared(shared)


@contextlib.contextmanager
def watched(*, may_wait: bool = False) -> Iterator[dict[str, int]]:
    """Checks how the block uses the device, and yields the counts of what the device did.

    Memory must not be touched before its event, and no thread of the library may give torch's
    stream work. Unless `may_wait` is true, nothing may wait for all work of the device.
    """
    fake = load()
    before = fake.counts()
    done: dict[str, int] = {}
    yield done
    done.update({name: count - before[name] for name, count in fake.counts().items()})
    assert fake.violations() == []
    assert may_wait or done["waits"] == 0
