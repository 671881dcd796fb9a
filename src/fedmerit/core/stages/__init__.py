"""What the server measures or bounds before it weighs clients."""
