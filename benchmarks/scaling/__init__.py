"""`make bench-scaling`: what one PostgreSQL server carries."""
