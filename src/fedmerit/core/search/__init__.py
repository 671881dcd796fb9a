"""How a round's weighting and server step are chosen."""
