"""Makes frameworks on top of torch accept the backend "mccl".

Each of these frameworks accepts only the backends in its own list. Each module in this package
changes one framework, when the program imports the framework's module that holds the list. No
framework is imported that the program does not use.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from functools import partial
from types import ModuleType

import mccl_engine

#: Maps the module of a framework to the module here that changes it.
_CHANGES = {
    "accelerate.state": "accelerate",
    "ignite.distributed.comp_models.native": "ignite",
    "lightning.fabric.strategies": "lightning",
    "lightning.pytorch.strategies": "lightning",
    "lightning_fabric.strategies": "lightning",
    "pytorch_lightning.strategies": "lightning",
    "ray.util.collective.collective": "ray",
}


def install() -> None:
    """Changes each framework at once, or when it is imported. Never raises."""
    for name, change in _CHANGES.items():
        module = sys.modules.get(name)
        if module is None or getattr(module.__spec__, "_initializing", False):
            mccl_engine.after_import(name, partial(_change, name, change))
        else:
            _change(name, change)


def _change(name: str, change: str) -> None:
    """Changes one framework. If that fails because of its version, only warns."""
    try:
        module: ModuleType = sys.modules[name]
        importlib.import_module(f".{change}", __name__).change(module)
    except Exception as error:
        warnings.warn(
            f"{name} does not accept the backend mccl, because mccl does not support this version: "
            f"{error!r}",
            stacklevel=2,
        )
