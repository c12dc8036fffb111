"""The variables that a call may read or set, judging by the program. Calls that share variables do not run at the same
time. Pure.

A playbook in plain words may set every variable that its lines for a model mention. Python cannot access an agent's
variables; the playbooks it calls can.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from typing import TypeAlias

import msgspec

from cuebook.dialects.program.listing import Listing
from cuebook.dialects.program.machine.decide import needs_model
from cuebook.dialects.program.model import Agent, ListingLine, Playbook

Variable: TypeAlias = tuple[str, str]
"""Agent and name."""

_VARIABLE = re.compile(r"\$([^\W\d]\w*+)")
_TARGET = re.compile(r"\s*+(?:set\s++)?\$([^\W\d]\w*+)\s*+(?::[^=]*+)?=(?!=)", re.IGNORECASE)
_ITEM = re.compile(r"\s*+for\s++(?:each\s++)?\$(\w++)", re.IGNORECASE)
_WORD = re.compile(r"[^\W\d][\w.]*+")


class Touched(msgspec.Struct, frozen=True):
    reads: frozenset[Variable] = frozenset()
    sets: frozenset[Variable] = frozenset()

    def __or__(self, other: Touched) -> Touched:
        return Touched(self.reads | other.reads, self.sets | other.sets)

    def disturbs(self, other: Touched) -> bool:
        """Whether one of the two may set a variable that the other reads or sets."""
        return bool(self.sets & (other.reads | other.sets) or other.sets & self.reads)


def touched_by(agent: Agent, playbook: Playbook, listing: Listing) -> Touched:
    """The variables of the playbook itself, without those of its calls. Parameters are not shared."""
    if playbook.kind == "python":
        return Touched()
    own = {param.name for param in playbook.params}

    def shared(names: Iterable[str]) -> frozenset[Variable]:
        return frozenset((agent.name, name) for name in names if name not in own)

    reads = shared(listing.declared)
    if playbook.kind == "raw":
        return Touched(reads)
    if playbook.kind == "react":
        return Touched(reads, reads)
    return Touched(reads, shared(name for line in listing.lines for name in _set_by(line)))


def _set_by(line: ListingLine) -> Iterator[str]:
    if line.code in ("EXE", "TNK") and needs_model(line):
        yield from _VARIABLE.findall(line.text)
    found = _TARGET.match(line.text) if line.code in ("EXE", "QUE") else _ITEM.match(line.text)
    if found is not None:
        yield found[1]


def named_in(agent: Agent, playbook: Playbook) -> set[str]:
    """Words that may name playbooks it calls."""
    if playbook.kind == "python":
        return _named_in_python(agent.source or playbook.source, playbook.name)
    texts = [playbook.description, *(line.text for line in playbook.steps), *(note.text for note in playbook.notes)]
    return {word.rstrip(".") for text in texts for word in _WORD.findall(text)}


def _named_in_python(source: str, name: str) -> set[str]:
    """The names in a function, and in the functions of the source that it refers to."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return set(_WORD.findall(source))
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    found: set[str] = set()
    waiting = [name]
    while waiting:
        node = functions.pop(waiting.pop(), None)
        for one in ast.walk(node) if node is not None else ():
            match one:
                case ast.Name(word):
                    found.add(word)
                    waiting.append(word)
                case ast.Attribute(ast.Name(of), word):
                    found.add(f"{of}.{word}")
    return found
