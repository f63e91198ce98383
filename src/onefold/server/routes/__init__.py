"""The HTTP API: one module for reads, one for writes, one for rooms, one for health."""
