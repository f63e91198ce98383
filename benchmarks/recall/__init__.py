"""How much of what was said a search finds, when the question has other words than the answer."""
