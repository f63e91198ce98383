"""Stores of records and what is derived from them: the protocol, SQLite, PostgreSQL, JSON lines, memory."""
