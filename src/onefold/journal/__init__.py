"""Where sessions are kept: the contract, and one backend per kind of store."""
