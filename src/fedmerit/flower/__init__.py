"""Flower: the same recipes on a real federation."""

from fedmerit.flower.clientapp import make_client_app
from fedmerit.flower.gridfleet import GridFleet
from fedmerit.flower.inprocess import InProcessGrid
from fedmerit.flower.merit import Merit, facts

__all__ = ["GridFleet", "InProcessGrid", "Merit", "facts", "make_client_app"]
