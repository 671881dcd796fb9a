"""Tasks: data spread over clients, and the model they learn; `registry` finds them by name."""
