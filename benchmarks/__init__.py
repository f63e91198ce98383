"""What onefold costs and what it saves, measured: speed, peers, scaling, masking, fidelity."""
