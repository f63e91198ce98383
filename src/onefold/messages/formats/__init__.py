"""One module for each message format."""
