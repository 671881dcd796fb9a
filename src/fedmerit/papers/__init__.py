"""The four papers: what they print, what does not hold, and all of it again."""
