"""Cuebook for assistants: an MCP server. The command line serves it over stdio, the web app over HTTP."""
