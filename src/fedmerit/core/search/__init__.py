"""Search over weightings and server steps of a round."""
