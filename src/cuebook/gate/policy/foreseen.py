"""What rules could say to an action of which a part is not known yet: before a run, when words stand for what it will give."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from cuebook.gate.policy.addresses import address_of, parsed
from cuebook.gate.policy.bundle import STRICTER, Decision, Policy, Rule
from cuebook.gate.policy.commands import command_of
from cuebook.gate.policy.patterns import Stand, may_fit
from cuebook.kernel.ports import Action


def stricter_rules(action: Action, policies: Sequence[Policy], unknown: Stand, than: Decision) -> Iterator[Rule]:
    """The rules, stricter than the decision, that could turn out to be about the action."""
    if not unknown.within(action.target):
        return
    may_be_about = _about(action, unknown)
    for layer in (layer for policy in policies for layer in policy.layers):
        for decision in STRICTER[STRICTER.index(than) + 1 :]:
            for number, pattern in enumerate(layer.patterns(action.domain, decision)):
                if may_be_about(pattern):
                    yield layer.rule(action.domain, decision, number)


def _about(action: Action, unknown: Stand) -> Callable[[str], bool]:
    match action.domain:
        case "command":
            command = command_of(action.target)
            return lambda pattern: command.may_be_caught_by(pattern, unknown)
        case "egress":
            return lambda pattern: _may_catch(pattern, action.target, unknown)
        case _:
            return lambda pattern: may_fit(pattern, unknown.pieces(action.target))


def _may_catch(pattern: str, target: str, unknown: Stand) -> bool:
    address = address_of(target)
    try:
        rule = parsed(pattern)
    except ValueError:
        return True  # a restriction that cannot be read restricts
    if address is None or unknown.within(address.host):
        return True
    if not rule._replace(path=None).catches(address):
        return False
    path = rule.path
    return path is None or any(may_fit(path, unknown.pieces(one)) for one in (address.path, address.meant))
