"""Which models exist, and which client holds which."""
