"""The rules of a journal: what may be written when, whatever store it is in."""
