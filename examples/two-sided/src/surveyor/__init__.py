"""The two sides of the example: `job` for the sandbox, `desk` for the host."""
