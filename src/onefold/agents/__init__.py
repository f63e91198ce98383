"""Agents that speak the Agent Client Protocol: run behind onefold, shared by clients, outlived by their sessions."""
