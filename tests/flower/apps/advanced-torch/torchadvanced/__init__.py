"""In the shape of Flower's advanced-pytorch: an own strategy with its own start, and nodes with state."""
