"""What runs in the sandbox."""
