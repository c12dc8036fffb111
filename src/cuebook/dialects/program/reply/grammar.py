"""The grammar of the legal replies at a position (GBNF, as in llama.cpp), for models that support one.

It leads through the next lines up to the yield, and leaves open only what the model decides: words, values and
conditions. A model that follows it cannot break a control-flow rule. Pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping

from cuebook.dialects.program.listing import ELIDABLE, END, Listing, Position, call_named
from cuebook.dialects.program.machine.decide import SPEAKING, foreseen, needs_model, spelled
from cuebook.dialects.program.model import ListingLine, Param
from cuebook.dialects.program.reply.items import Call
from cuebook.dialects.program.values.evaluate import type_name
from cuebook.dialects.program.values.expressions import (
    CallOf,
    Expression,
    ExpressionError,
    Literal,
    Ref,
    Words,
    call_of,
)
from cuebook.dialects.program.verify.scope import BUILT_IN
from cuebook.dialects.program.verify.verdicts import Signature

_VARIABLE = re.compile(r"\$([^\W\d]\w*)(?::(\w+))?")
_ASSIGNED = re.compile(r"\s*+\$([^\W\d]\w*+)\s*+(?::\s*+[\w\[\], ]++)?+\s*+=(?!=)\s*+")
_TYPED = re.compile(r"(\$\w+):\w+")
_TAIL = re.compile(r"(?<!\s)\s*+;.*\Z", re.DOTALL)

_COMMON = r"""
words ::= [^\n`"\\]{1,160}
string ::= "\"" [^\n`"\\]{1,200} "\""
int ::= "-"? [0-9]{1,9}
float ::= "-"? [0-9]{1,9} ("." [0-9]{1,6})?
bool ::= "true" | "false"
plain ::= string | float | bool | "null"
list ::= "[" (plain (", " plain){0,20})? "]"
dict ::= "{" (string ": " plain (", " string ": " plain){0,20})? "}"
any ::= plain | list | dict
"""
_BUILT_IN = {**BUILT_IN, "SaveArtifact": Signature(tuple(Param(one, "str") for one in ("name", "summary", "content")))}
MOST_LINES = 200
"""The maximum number of lines in one reply. After them the reply yields, and the model is asked to continue."""
_RULES = {"str": "string", "int": "int", "float": "float", "bool": "bool", "list": "list", "dict": "dict"}


def grammar_of(
    listing: Listing,
    position: Position | None,
    variables: Collection[str],
    signatures: Mapping[str, Signature],
    *,
    heard: bool = False,
    legal: Collection[int] | None = None,
) -> str | None:
    """Build the grammar. Return None for a playbook without a listing, where every reply is legal. `heard` means that the
    user has just spoken. `legal` contains the nodes that may come next, if the caller knows more than the listing."""
    if not listing.lines:
        return None
    return _Grammar(listing, variables, signatures).text(position, heard, legal)


class _Grammar:
    def __init__(self, listing: Listing, variables: Collection[str], signatures: Mapping[str, Signature]) -> None:
        self._listing, self._signatures = listing, signatures
        self._variables = set(variables)
        """The variables that have a value."""
        self._rules: dict[str, str] = {}
        self._unmade: list[tuple[str, int]] = []
        """Rules that are referenced but not yet built, with their nodes. A loop leads back to one of them."""

    def text(self, position: Position | None, heard: bool, legal: Collection[int] | None) -> str:
        begun = self._listing.resumes(position)
        starts = _named(self._listing, begun if legal is None else legal)
        given = "".join(self._answers(position)) if heard else ""
        head = _quoted(f"recap – {self._listing.name} is under way\nplan – go on with it\n")
        decided = given and position is not None and self._decided(begun)
        root = f"root ::= {head} {given}" + ('"yld call"' if decided else self._ways(starts))
        for name, node in self._unmade:  # grows during iteration
            self._rules[name] = self._line(node, self._listing.line_at(node))
        return "\n".join([root, *(f"{name} ::= {rule}" for name, rule in self._rules.items())]) + _COMMON

    def _answers(self, position: Position | None) -> Iterator[str]:
        """Set the variables that the previous question asked for, before anything else."""
        lines = self._listing.lines
        if position is None or position.line not in self._listing.by_number:
            return
        index = self._listing.by_number[position.line][0]
        waited = self._listing.yields[index]
        if waited is None or waited.target != "user":
            return  # a call failed or another agent spoke, so no question was answered
        asking = lines[index - 1] if lines[index].code == "YLD" and index else lines[index]
        for name, type in _VARIABLE.findall(asking.text):
            if type:
                self._variables.add(name)
                yield f'{_quoted(f"`Var[${name}, ")} {_rule(type)} "]`\\ntrig? no\\n" '

    def _ways(self, nodes: Iterable[int]) -> str:
        return f"({' | '.join(self._at(node) for node in nodes) or self._at(END)})"

    def _at(self, node: int) -> str:
        """The name of the rule for a reply that starts at this node."""
        if node == END:
            self._rules.setdefault("end", self._returns(""))
            return "end"
        name = f"line{node}"
        if name not in self._rules:
            self._rules[name] = ""
            self._unmade.append((name, node))
        return name

    def _line(self, node: int, line: ListingLine) -> str:
        step = _quoted(f'`Step["{self._listing.name}:{line.number}:{line.code}"]`')
        found = self._listing.yields[node % len(self._listing.lines)]
        if line.code == "YLD":
            target = found.target if found is not None and found.target else "call"
            return f"{step} {_quoted(f' yld {target}')}"
        if line.code == "RET":
            return f'{step} " " {self._returns(line.text)}'
        body = f'{step} {self._does(line)}"\\ntrig? no\\n" '
        if found is not None and found.target is not None:
            return f"{body}{_quoted(f'yld {found.target}')}"
        following = _named(self._listing, self._listing.reached((node,)))
        asks = any(one != END and needs_model(self._listing.line_at(one)) for one in following)
        if len(self._rules) > MOST_LINES or not asks or self._decided(self._listing.reached((node,))):
            return f'{body}"yld call"'  # what follows needs no model, or belongs to the next reply
        return body + self._ways(following)

    def _decided(self, nodes: Iterable[int]) -> bool:
        """Whether one of the nodes is a condition that can be computed once the reply has set its variables."""
        size = len(self._listing.lines)
        conditions = (one % size for one in nodes if one != END and self._listing.line_at(one).code in ("CND", "JMP"))
        return any(len(self._listing.successors(one)) > 1 and foreseen(self._listing, one) for one in conditions)

    def _does(self, line: ListingLine) -> str:
        if line.code == "QUE":
            return f'" `" {self._calls(line)} "`" '
        sets = {name: type for name, type in _VARIABLE.findall(line.text) if self._sets(line, name, type)}
        parts = [
            f'{_quoted(f" `Var[${name}, ")} {_rule(type or self._type(name))} "]`" ' for name, type in sets.items()
        ]
        return "".join(parts) or '" " words '

    def _sets(self, line: ListingLine, name: str, type: str) -> bool:
        """Whether the line sets a variable: it mentions it with a type, or assigns it."""
        assigned = _ASSIGNED.match(line.text)
        return bool(type) or (assigned is not None and assigned[1] == name)

    def _type(self, name: str) -> str:
        return self._listing.declared.get(name, "")

    def _calls(self, line: ListingLine) -> str:
        name = call_named(line)
        if not name or name in SPEAKING:
            return self._says(line)
        text = _TYPED.sub(r"\1", _TAIL.sub("", line.text.strip()))
        assigned = _ASSIGNED.match(_TAIL.sub("", line.text.strip()))
        target = f"${assigned[1]} = " if assigned else ""
        start = _ASSIGNED.match(text)
        try:
            call = call_of(text, start.end() if start else 0)
        except ExpressionError:
            call = None
        if call is not None and self._known(call):
            return _quoted(target + text[start.end() if start else 0 :])
        signature = self._signatures.get(name) or _BUILT_IN.get(name, Signature())
        args = [f"{_quoted(f'{param.name}=')} {_rule(param.type)}" for param in signature.params]
        between = ' ", " '.join(args)
        return f'{_quoted(f"{target}{name}(")} {between} ")"'

    def _says(self, line: ListingLine) -> str:
        """A message to the recipient that the line names: free words, or the value of a variable."""
        found = spelled(line)
        call = Call("Say", found.call.args, found.call.named) if found is not None and found.call is not None else None
        to, message = ("user", None) if call is None else (_words(call.said_to), call.message)
        known = isinstance(message, Ref) and message.name in self._variables
        said = _quoted(f"${message.name}") if known and isinstance(message, Ref) else "string"
        return f'{_quoted(f"Say({json.dumps(to)}, ")} {said} ")"'

    def _known(self, call: CallOf) -> bool:
        """Whether the arguments can be copied from the line."""
        values = [*call.args, *(value for _, value in call.named)]
        return all(isinstance(one, Literal) or (isinstance(one, Ref) and one.name in self._variables) for one in values)

    def _returns(self, text: str) -> str:
        known = [f"{_quoted(f'${name}')}" for name, _ in _VARIABLE.findall(text) if name in self._variables]
        nothing = self._listing.returns.strip().lower() in ("", "none", "null")
        value = " | ".join([*known, '""' if nothing and not text.strip() else _rule(self._listing.returns)])
        return f'"`Return[" ({value}) "]` `Var[$__, " string "]`\\nyld return"'


def _words(value: Expression | None) -> str:
    """The recipient that a line speaks to; the user if only a model can tell."""
    text = value.value if isinstance(value, Literal) else value.text if isinstance(value, Words) else ""
    return text if isinstance(text, str) and text.replace(" ", "").isalnum() else "user"


def _named(listing: Listing, nodes: Iterable[int]) -> list[int]:
    """The lines that a reply has to name, without those it may omit."""
    return [node for node in sorted(nodes) if node == END or listing.line_at(node).code not in ELIDABLE]


def _rule(type: str) -> str:
    return _RULES.get(type_name(type), "any")


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
