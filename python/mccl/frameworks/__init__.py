"""Makes frameworks on top of torch accept the backend where they list the backends they know.

Each module here holds the name of the framework's module that has such a list, and changes it once
that module is imported. Nothing is imported for a framework that the program does not use.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from functools import partial
from types import ModuleType

import mccl_engine

#: The module of a framework to change, and the module here that changes it.
_CHANGES = {
    "accelerate.state": "accelerate",
    "ignite.distributed.comp_models.native": "ignite",
    "lightning.fabric.strategies": "lightning",
    "lightning.pytorch.strategies": "lightning",
    "lightning_fabric.strategies": "lightning",
    "pytorch_lightning.strategies": "lightning",
}


def install() -> None:
    """Changes the frameworks that are imported, and the others once they are. Never raises."""
    for name, change in _CHANGES.items():
        module = sys.modules.get(name)
        if module is None or getattr(module.__spec__, "_initializing", False):
            mccl_engine.after_import(name, partial(_change, name, change))
        else:
            _change(name, change)


def _change(name: str, change: str) -> None:
    """Changes one framework. A version that is built otherwise is left as it is, with a warning."""
    try:
        module: ModuleType = sys.modules[name]
        importlib.import_module(f".{change}", __name__).change(module)
    except Exception as error:
        warnings.warn(
            f"{name} does not know the backend mccl, because mccl could not change this version of "
            f"it: {error!r}",
            stacklevel=2,
        )
