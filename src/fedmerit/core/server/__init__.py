"""From weighted updates to the next model."""
