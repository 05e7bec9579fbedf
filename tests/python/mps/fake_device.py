"""The double of a Mac's GPU in a process of its own."""

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
    """Imports it, behind the library that it takes the place of the system in."""
    import torch

    from mccl import torch_backend

    torch_backend.load()
    if str(FOLDER) not in sys.path:
        sys.path.insert(0, str(FOLDER))
    fake = importlib.import_module("fake_mps")
    # What torch's Python asks of a build for Macs.
    # Torch 2.15 asks for what is behind the cache of the real one.
    torch.backends.mps.is_available = functools.cache(lambda: True)
    if hasattr(torch.mps, "default_stream"):  # from 2.15 on, in C++ that no build for Linux has
        torch.mps.current_stream = torch.mps.default_stream = functools.cache(object)
    return fake


def start(shared: bool) -> None:
    """As a torch of its kind: memory is shared with the host from torch 2.12 on."""
    load().set_shared(shared)


@contextlib.contextmanager
def watched(*, may_wait: bool = False) -> Iterator[dict[str, int]]:
    """Nothing was touched before its event, no thread of the library's gave torch's stream
    anything, and nobody waited for all of the device; tells what was done inside."""
    fake = load()
    before = fake.counts()
    done: dict[str, int] = {}
    yield done
    done.update({name: count - before[name] for name, count in fake.counts().items()})
    assert fake.violations() == []
    assert may_wait or done["waits"] == 0
