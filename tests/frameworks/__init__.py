"""`make test-integrations`: onefold inside the frameworks it is for, each in an environment of its own."""
