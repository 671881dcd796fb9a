"""Learning on a client: the learner for PyTorch models; `core.learner` says what any learner must offer."""
