"""In the shape of Flower's quickstart-pytorch: eval_acc, eval_loss, evaluate_fn, a model file at the end."""
