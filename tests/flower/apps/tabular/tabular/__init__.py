"""In the shape of Flower's fl-tabular: a table, batches as num-examples, accuracy and loss."""
