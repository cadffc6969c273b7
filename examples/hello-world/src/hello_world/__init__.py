"""An ordinary project: plain functions, one third-party dependency, nothing of Agentix in it."""
