"""What a context still holds after five compactions by a summarizer that forgets everything. See `docs/fidelity.md`."""
