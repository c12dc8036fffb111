"""Which patterns a person may say "always" to. Narrow ones: everything wider belongs into a policy file."""

from __future__ import annotations

import shlex

from cuebook.gate.policy.addresses import PORTS, address_of, parsed
from cuebook.gate.policy.commands import SHELLS, WRAPPERS, command_of
from cuebook.gate.policy.files import MODES
from cuebook.gate.policy.patterns import LONGEST, is_literal
from cuebook.kernel.errors import BadInput
from cuebook.kernel.ports import Action, Domain


def safe_pattern(pattern: str) -> str:
    """What is wrong with the form of an override's pattern; empty if nothing is.

    It may have no `?`, and one `*` at most, which is its last character and follows neither nothing nor a blank.
    """
    fixed = pattern.removesuffix("*")
    if len(pattern) > LONGEST:
        return f"may have {LONGEST} characters at most"
    if not pattern.isprintable():
        return "must not hold line ends or characters that cannot be seen"
    if fixed != fixed.strip() or not fixed or not is_literal(fixed):
        return "may have one * at most, at its end and not after a blank, and no ?"
    return ""


def problem_with(domain: Domain, pattern: str) -> str:
    """Why this pattern cannot be an override, as the end of a sentence; empty if it can."""
    problem = safe_pattern(pattern)
    if problem:
        return problem
    if is_literal(pattern):
        return _flaw_of(domain, pattern)
    fixed = pattern.removesuffix("*")
    match domain:
        case "command":
            program, blank, _ = fixed.partition(" ")
            if not blank:
                return "must name the program and the beginning of its arguments before the *"
            if command_of(program).program in SHELLS | WRAPPERS.keys():
                return "must not leave open what a shell or a wrapper runs"
        case "secret":
            return "must name the secret in full"
        case "egress":
            if "/" not in fixed.partition("://")[2] or not is_literal(fixed):
                return "must name the scheme and the host in full, as in https://api.example.com/*"
        case "file":
            mode, _, path = fixed.partition(":")
            if mode not in MODES or path in ("", "/"):
                return "must say read: or write: and name a file or a folder, as in write:src/*"
        case _:
            pass
    return _flaw_of(domain, pattern)


def check_override(domain: Domain, pattern: str) -> None:
    """Raises `BadInput` for a pattern that is too wide to be an override."""
    problem = problem_with(domain, pattern)
    if problem:
        raise BadInput(
            f"'{pattern}' cannot be an override: it {problem}.",
            fix="Write a narrower pattern here, or a rule in a policy file.",
        )


def suggested(action: Action) -> tuple[str, ...]:
    """Patterns that a person may choose from when saying "always", the narrowest first."""
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


def _commands(target: str) -> list[str]:
    parts = command_of(target).parts
    if len(parts) == 1:
        # The shell adds nothing to a single command: what is said about that command holds for it as well.
        return _commands(parts[0])
    argv = command_of(target).argv
    if len(argv) < 2 or argv[1].startswith("-"):
        return [target]
    return [target, f"{shlex.join(argv[:2])}*"]


def _addresses(target: str) -> list[str]:
    address = address_of(target)
    if address is None:
        return []
    host = f"[{address.host}]" if ":" in address.host else address.host
    port = "" if address.port == PORTS.get(address.scheme) else f":{address.port}"
    place = f"{address.scheme}://{host}{port}"
    return [f"{address.method} {place}{address.path}", f"{place}/*"]


def _flaw_of(domain: Domain, pattern: str) -> str:
    if domain != "egress":
        return ""
    try:
        return "" if is_literal(parsed(pattern).host) else "must name the host in full"
    except ValueError as error:
        return str(error)
