"""Learning on a client: what a learner must offer, and the one for PyTorch models."""
