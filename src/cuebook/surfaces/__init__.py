"""Entry points: command line, web, MCP and Python. Each one calls the service and contains no rules."""
