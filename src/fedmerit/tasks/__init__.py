"""Tasks: data distributed over clients, and the model they train; `registry` finds them by name."""
