"""The algebra: values and pure functions on arrays, with numpy and scipy only."""
