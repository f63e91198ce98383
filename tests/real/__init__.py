"""`make test-agents`: onefold against the real programs, each installed into `.real`, with a model on loopback."""
