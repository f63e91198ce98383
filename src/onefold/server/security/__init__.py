"""Who is let in, and how much of a request is read before that is known."""
