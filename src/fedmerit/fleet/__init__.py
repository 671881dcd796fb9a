"""Fleets: the clients, wherever they are."""
