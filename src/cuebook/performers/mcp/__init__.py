"""Tools and prompts over the Model Context Protocol: servers as child processes and on the network."""

from __future__ import annotations

from cuebook.performers.mcp.client import McpTools, mcp_servers
from cuebook.performers.mcp.http import checked_client
from cuebook.performers.mcp.prompts import McpPrompts
from cuebook.performers.mcp.server import McpServer

__all__ = ["McpPrompts", "McpServer", "McpTools", "checked_client", "mcp_servers"]
