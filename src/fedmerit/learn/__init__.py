"""Learning on a client: the learner for PyTorch models; `core.learner` defines the interface of any learner."""
