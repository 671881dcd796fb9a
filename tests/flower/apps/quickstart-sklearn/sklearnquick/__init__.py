"""In the shape of Flower's quickstart-sklearn: lists of arrays, accuracy and test_logloss."""
