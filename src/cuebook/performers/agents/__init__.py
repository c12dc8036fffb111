"""Coding agents that answer model calls over the Agent Client Protocol.

An agent is a process with tools of its own, so the sandbox is the wall around it. Whatever it asks of its client becomes a
call of the program, which passes the gate.
"""

from cuebook.performers.agents.catalogue import PREFIX, Agent, Catalogue

__all__ = ["PREFIX", "Agent", "Catalogue"]
