"""An MCP tool server with figures to analyse, for the gallery's data playbook: `python analytics_server.py`."""

# No `from __future__ import annotations`: the SDK reads the annotations.
from mcp.server.mcpserver import MCPServer

server = MCPServer("analytics")


@server.tool(structured_output=False)
def get_metrics(metric: str, period: str) -> str:
    """The values of a metric over a period."""
    return f"{metric} over {period}: 120, 118, 131, 245, 122"


if __name__ == "__main__":
    server.run()
