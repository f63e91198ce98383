"""What masking saves on recorded conversations of coding agents, and what it costs in recall."""
