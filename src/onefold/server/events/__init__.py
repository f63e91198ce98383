"""Live events: from the store to any number of followers."""
