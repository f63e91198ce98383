"""The HTTP API, the live events and the page of `onefold serve`. An extra: `onefold[server]`.

It holds no rules of its own: what it answers comes from a `Store`, and what it does a `Session` does.
"""
