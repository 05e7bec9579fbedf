"""Makes frameworks on top of torch accept the backend "mccl".

Such a framework has a list of the backends that it knows. Each module here changes one framework,
once the program has imported the framework's module with that list. Nothing is imported for a
framework that the program does not use.
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
}


def install() -> None:
    """Changes each framework, now or once it is imported. Never raises."""
    for name, change in _CHANGES.items():
        module = sys.modules.get(name)
        if module is None or getattr(module.__spec__, "_initializing", False):
            mccl_engine.after_import(name, partial(_change, name, change))
        else:
            _change(name, change)


def _change(name: str, change: str) -> None:
    """Changes one framework. If its version does not fit, changes nothing and warns."""
    try:
        module: ModuleType = sys.modules[name]
        importlib.import_module(f".{change}", __name__).change(module)
    except Exception as error:
        warnings.warn(
            f"{name} does not know the backend mccl, because mccl could not change this version of "
            f"it: {error!r}",
            stacklevel=2,
        )
