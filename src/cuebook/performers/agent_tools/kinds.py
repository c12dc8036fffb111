"""What a call of each built-in tool may do, in policy terms, whatever its arguments are. For previews."""

from __future__ import annotations

import msgspec

from cuebook.kernel.ports import Action

ANY = "cuebook-any"
"""Represents every command, file or host in the actions below. No rule names it."""


class Kind(msgspec.Struct, frozen=True):
    """One kind of action of a tool."""

    words: str
    action: Action


_READS = Kind("reading files in the workspace", Action("file", f"read:{ANY}", True))
_WRITES = Kind("changing files in the workspace", Action("file", f"write:{ANY}"))
_RUNS = Kind("command lines", Action("command", ANY))
_FETCHES = Kind("requests to other hosts", Action("egress", f"GET https://{ANY}/", True))
_CONNECTS = Kind("hosts that a command names", Action("egress", f"CONNECT https://{ANY}/"))

KINDS: dict[str, tuple[Kind, ...]] = {
    "Read": (_READS,),
    "Glob": (_READS,),
    "Grep": (_READS,),
    "Write": (_WRITES,),
    "Edit": (_WRITES,),
    "Bash": (_RUNS, _CONNECTS),
    "WebFetch": (_FETCHES,),
    "WebSearch": (_FETCHES,),
}
HARMLESS = frozenset({"BashOutput", "KillBash", "TodoWrite"})
"""Tools that concern only the run itself: they can be denied, but are never asked about."""
