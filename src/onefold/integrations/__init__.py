"""One module a framework. Each is an extra, imports its framework, and nothing else here imports it."""
