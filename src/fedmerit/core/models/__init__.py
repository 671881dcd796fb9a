"""Shared, cluster and personal models, and how a round updates them."""
