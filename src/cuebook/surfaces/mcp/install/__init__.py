"""Adds Cuebook to the configuration of MCP clients."""
