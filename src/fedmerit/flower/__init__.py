"""Run recipes on Flower: a Strategy for existing apps, or a whole federation of SuperNodes.

Names are imported on first use, because Flower starts a process for each message and that process needs none of them.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedmerit.flower.clientapp import clip_mod as clip_mod
    from fedmerit.flower.clientapp import facts as facts
    from fedmerit.flower.clientapp import make_client_app as make_client_app
    from fedmerit.flower.gridfleet import GridFleet as GridFleet
    from fedmerit.flower.in_process import InProcessGrid as InProcessGrid
    from fedmerit.flower.merit import Merit as Merit

_MODULE_OF = {
    "GridFleet": "gridfleet",
    "InProcessGrid": "in_process",
    "Merit": "merit",
    "clip_mod": "clientapp",
    "facts": "clientapp",
    "make_client_app": "clientapp",
}
__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> Any:
    """Import a public name from its module on first use."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'fedmerit.flower' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"fedmerit.flower.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
