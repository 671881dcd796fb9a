"""fresh: a Flower app in the layout of a new one."""
