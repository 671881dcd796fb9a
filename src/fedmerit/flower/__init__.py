"""Flower: the same recipes on a real federation.

Names are imported when they are first used: a node's process, of which each message starts one, needs none of them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedmerit.flower.clientapp import make_client_app as make_client_app
    from fedmerit.flower.gridfleet import GridFleet as GridFleet
    from fedmerit.flower.inprocess import InProcessGrid as InProcessGrid
    from fedmerit.flower.merit import Merit as Merit
    from fedmerit.flower.merit import facts as facts
    from fedmerit.flower.mods import clip_mod as clip_mod

_MODULE_OF = {
    "GridFleet": "gridfleet",
    "InProcessGrid": "inprocess",
    "Merit": "merit",
    "clip_mod": "mods",
    "facts": "merit",
    "make_client_app": "clientapp",
}
__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> Any:
    """A public name, imported from its file; afterwards it is found without asking again."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'fedmerit.flower' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"fedmerit.flower.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
