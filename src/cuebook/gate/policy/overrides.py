"""The patterns of overrides, which always allow an action. They must be narrow: wider patterns belong in a policy file."""

from __future__ import annotations

import re
import shlex

from cuebook.formats.executables import SHELLS, WRAPPERS
from cuebook.formats.shell import placed_in
from cuebook.gate.policy.commands import command_of
from cuebook.gate.policy.patterns import LONGEST, is_literal
from cuebook.gate.policy.targets import MODES, PORTS, address_of, parsed
from cuebook.gate.secrets import SecretProblem, check_handle
from cuebook.kernel.errors import BadInput
from cuebook.kernel.ports import Action, Domain

SHOWN = 100
"""The number of characters of a pattern that an error message shows."""
_FIXED = 4
"""The minimum number of characters of a tool's name before the `*`."""


def safe_pattern(pattern: str) -> str:
    """What is wrong with the form of an override's pattern; empty if it is valid.

    It must not contain a `?`, and only one `*`: as the last character, but not the only one, and not after a space.
    """
    fixed = pattern.removesuffix("*")
    if len(pattern) > LONGEST:
        return f"must have at most {LONGEST} characters"
    if not pattern.isprintable():
        return "must not contain line breaks or invisible characters"
    if fixed != fixed.strip() or not fixed or not is_literal(fixed):
        return "must not contain a ?, or a * anywhere but at the end, and not after a space"
    return ""


def problem_with(domain: Domain, pattern: str) -> str:
    """Why this pattern cannot be an override, as the rest of a sentence; empty if it can."""
    problem = safe_pattern(pattern)
    if problem:
        return problem
    fixed, is_open = pattern.removesuffix("*"), not is_literal(pattern)
    match domain:
        case "command" if is_open:
            return _open_command(fixed)
        case "secret":
            return "" if not is_open and _is_handle(pattern) else _HANDLE
        case "egress":
            return _flaw_of_address(pattern, fixed)
        case "file" if is_open:
            mode, _, path = fixed.partition(":")
            if mode not in MODES or path in ("", "/"):
                return "must begin with read: or write: and name a file or a folder, as in write:src/*"
        case "tool" if is_open and len(fixed) < _FIXED:
            return f"must have at least {_FIXED} characters before the *"
        case _:
            pass
    return ""


_PLACED = re.compile(r"cd (?:[^\s'\"]+|'[^']*') && (?P<line>.*)", re.DOTALL)
_HANDLE = "must be the full handle of the secret, as in env:NAME, keyring:NAME or file:/PATH"
_ADDRESS = "must name the scheme and the host in full, as in https://api.example.com/*"


def _open_command(fixed: str) -> str:
    placed = _PLACED.match(fixed)
    if placed and not placed["line"]:
        return "must name the program and the beginning of its arguments before the *"
    fixed = placed["line"] if placed else fixed
    program, blank, _ = fixed.partition(" ")
    if not blank:
        return "must name the program and the beginning of its arguments before the *"
    if command_of(program).program in SHELLS | WRAPPERS.keys():
        return "must not leave open what a shell or a wrapper runs"
    if fixed.rpartition(" ")[2].lstrip("'\"").startswith("-"):
        # Options can make a program run other programs or write to unexpected places.
        return "must not leave an option open"
    return ""


def _is_handle(pattern: str) -> bool:
    try:
        return check_handle(pattern) == pattern
    except SecretProblem:
        return False


def _flaw_of_address(pattern: str, fixed: str) -> str:
    try:
        address = parsed(pattern)
    except ValueError as error:
        return str(error) if "://" in pattern else _ADDRESS
    if address.scheme not in PORTS or not is_literal(address.host):
        return _ADDRESS
    if fixed != pattern and "/" not in fixed.partition("://")[2]:
        return _ADDRESS
    return ""


def check_override(domain: Domain, pattern: str) -> None:
    """Raises `BadInput` for a pattern that is too wide to be an override."""
    problem = problem_with(domain, pattern)
    if problem:
        raise BadInput(
            f"{_shown(pattern)} cannot be an override: it {problem}.",
            fix="Write a narrower pattern here, or a rule in a policy file.",
        )


def suggested(action: Action) -> tuple[str, ...]:
    """Patterns that the user can choose from to always allow an action, the narrowest first."""
    match action.domain:
        case "command":
            candidates = _commands(action.target)
        case "egress":
            candidates = _addresses(action.target)
        case "file":
            folder, slash, _ = action.target.rpartition("/")
            candidates = [action.target, f"{folder}/*" if slash else ""]
        case "model":
            candidates = [action.target, f"{action.target.partition('/')[0]}/*"]
        case _:
            candidates = [action.target]
    return tuple(dict.fromkeys(one for one in candidates if one and not problem_with(action.domain, one)))


def not_suggested(action: Action) -> str:
    """Why no pattern is suggested for an action, as a clause."""
    if action.domain == "egress" and address_of(action.target) is None:
        return "its address cannot be checked"
    if action.domain == "secret" and not _is_handle(action.target):
        return f"it {_HANDLE}"
    problem = problem_with(action.domain, action.target)
    return f"it {problem}" if problem else "it cannot be written as one"


def _commands(target: str) -> list[str]:
    parts = command_of(target).parts
    if len(parts) == 1:
        # The shell adds nothing to a single command, so the patterns for that command apply.
        return _commands(parts[0])
    command = command_of(target)
    argv = command.argv
    if len(argv) < 2 or argv[1].startswith("-"):
        return [target]
    return [target, f"{placed_in(command.folder, shlex.join(argv[:2]))}*"]


def _addresses(target: str) -> list[str]:
    address = address_of(target)
    if address is None:
        return []
    host = f"[{address.host}]" if ":" in address.host else address.host
    port = "" if address.port == PORTS.get(address.scheme) else f":{address.port}"
    place = f"{address.scheme}://{host}{port}"
    return [f"{address.method} {place}{address.path}", f"{place}/*"]


def _shown(pattern: str) -> str:
    plain = pattern if pattern.isprintable() else ascii(pattern)[1:-1]
    return f"'{plain}'" if len(plain) <= SHOWN else f"'{plain[:SHOWN]}...'"
