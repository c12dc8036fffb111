"""The servers of the MCP tests, for the guide that shows how to connect to one."""

from __future__ import annotations

from tests.surfaces.mcp.conftest import served

__all__ = ["served"]
