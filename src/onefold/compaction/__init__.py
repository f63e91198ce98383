"""When to compact, where to cut, how to summarise, and how the work is done."""
