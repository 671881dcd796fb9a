"""Criteria: what a client's weight is earned by."""
