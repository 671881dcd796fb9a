"""Measurements and bounds before the server weighs clients."""
