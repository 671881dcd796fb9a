"""The algebra: values and pure functions on arrays; numpy and scipy alone."""
