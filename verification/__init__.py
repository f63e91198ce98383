"""The proof: what is done to a store, and what must hold all the same. `make soak` runs all of it at length."""
