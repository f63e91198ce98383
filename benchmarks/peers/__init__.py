"""`make bench-peers`: the same conversation through other frameworks' own stores and through onefold, side by side."""
