"""Hosts agents that speak the Agent Client Protocol: runs them, shares them between clients, and keeps their sessions
when they die."""
