"""A Flower app: a small CNN on scikit-learn's handwritten digits."""
