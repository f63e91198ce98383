"""What a context still says after compactions by a summarizer that forgets everything. See `docs/fidelity.md`."""
