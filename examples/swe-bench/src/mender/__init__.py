"""An agent that follows a script."""
