"""Selection of a round's clients, and collection of their answers."""
