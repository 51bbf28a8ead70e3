"""A log lived again under a policy, to see what its agent would have kept."""
