"""The call path: `agentix.runtime.client` on the host, `agentix.runtime.shared` for what both sides name."""
