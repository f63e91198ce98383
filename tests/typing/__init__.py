"""Examples of the public API for the type checker. Nothing here is run; `mypy` reads it."""
