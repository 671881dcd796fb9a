"""Fleets: the clients, on this machine or elsewhere."""
