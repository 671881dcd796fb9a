"""Flower: the same recipes on a real federation."""

from fedmerit.flower.clientapp import make_client_app
from fedmerit.flower.gridfleet import GridFleet
from fedmerit.flower.inprocess import InProcessGrid
from fedmerit.flower.merit import Merit, facts
from fedmerit.flower.mods import clip_mod

__all__ = ["GridFleet", "InProcessGrid", "Merit", "clip_mod", "facts", "make_client_app"]
