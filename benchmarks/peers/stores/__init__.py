"""One module a framework, each imported only in the environment that has it."""
