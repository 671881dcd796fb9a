"""Flower: the same recipes on a real federation."""

from fedmerit.flower.clientapp import ClientSide, make_client_app
from fedmerit.flower.gridfleet import GridFleet
from fedmerit.flower.inprocess import InProcessGrid

__all__ = ["ClientSide", "GridFleet", "InProcessGrid", "make_client_app"]
