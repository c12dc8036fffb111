"""Who decides on an approval and how many of them: the rule, the votes, and when they decide. Pure.

Stores count votes inside the transaction that records them, so two votes at the same moment are both counted.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from cuebook.kernel.errors import AlreadyVoted, BadInput

RULE, VOTES = "rule", "votes"
"""Keys: the rule in the details of an approval, and the votes in its answer."""
ROLE = "role:"
APPROVE, DENY, CHANGES = "approve", "deny", "changes"
_DECIDED = {APPROVE: "approved", DENY: "denied", CHANGES: "changes requested"}


class Rule(msgspec.Struct, frozen=True, omit_defaults=True):
    """Who decides on an approval, and how many of them."""

    by: tuple[str, ...] = ()
    """Names, and roles as `role:NAME`; if empty, every approver."""
    votes: int = 1
    """How many different people must approve."""
    denials: int = 1
    """How many different people must deny to deny it."""
    different_person: bool = False
    """Whether the person who started the run may not decide."""
    changes: tuple[str, ...] = ()
    """The steps to which an approver may send the run back; the first one is the default."""

    @property
    def counts(self) -> bool:
        """Whether one vote may not be enough."""
        return self.votes > 1 or self.denials > 1

    def plain(self) -> dict[str, Any]:
        """The rule as the details of an approval have it, before and after they are stored."""
        made: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(self))
        return made

    def words(self) -> str:
        """Who decides, as a clause; empty if every approver may."""
        parts = []
        if self.votes > 1 or self.by:
            some = "one" if self.votes == 1 else f"{self.votes}"
            parts.append(f"{some} of: {', '.join(self.by)}" if self.by else f"{some} different people")
        parts += ["not the person who started the run"] if self.different_person else []
        parts += [f"{self.denials} denials deny it"] if self.denials > 1 else []
        return "; ".join(parts)


def rule_of(details: Mapping[str, Any]) -> Rule:
    """The rule of an approval, from its details. The policy may also require a different person."""
    made = msgspec.convert(details.get(RULE, {}), Rule)
    if details.get("different_person") and not made.different_person:
        return msgspec.structs.replace(made, different_person=True)
    return made


def votes_of(answer: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The votes so far, oldest first."""
    return list(answer.get(VOTES, ()))


def is_listed(by: Collection[str], name: str, roles: Collection[str]) -> bool:
    """Whether a user is among these names and roles; an empty list means everyone. An admin has every role."""
    if not by or name in by:
        return True
    return any(f"{ROLE}{role}" in by for role in roles) or (
        "admin" in roles and any(one.startswith(ROLE) for one in by)
    )


def counted(
    details: Mapping[str, Any], owner: str, before: Mapping[str, Any], answer: dict[str, Any], by: str, now: float
) -> tuple[bool, dict[str, Any]]:
    """Adds a vote. Returns whether the approval is decided by now, and the answer to store.

    A person has one vote. One request for changes decides at once. If too few of the named people are left to approve, it is
    denied.
    """
    rule, votes = rule_of(details), votes_of(before)
    mine = next((vote for vote in votes if vote["by"] == by), None)
    if mine is not None:
        raise AlreadyVoted(f"{by} has already voted: {mine['decision']}.", fix="Someone else has to decide.")
    if answer.get("digest", "") != details.get("digest", ""):
        raise BadInput("This vote is for something else.", fix="Look at what is asked, and vote again.")
    vote = {"by": by, "decision": answer["decision"], "at": now}
    vote |= {name: answer[name] for name in ("reason", "through") if answer.get(name)}
    votes.append(vote)
    decision = _decision(rule, owner, votes)
    if not decision:
        return False, {VOTES: votes}
    return True, {**answer, "decision": decision, VOTES: votes}


def _decision(rule: Rule, owner: str, votes: list[dict[str, Any]]) -> str:
    """What the votes decide; empty if nothing yet."""
    last = votes[-1]["decision"]
    approved = sum(vote["decision"] == APPROVE for vote in votes)
    denied = sum(vote["decision"] == DENY for vote in votes)
    if last == CHANGES:
        return CHANGES
    if denied >= rule.denials:
        return DENY
    if approved >= rule.votes:
        return APPROVE
    return DENY if approved + _left(rule, owner, votes) < rule.votes else ""


def _left(rule: Rule, owner: str, votes: list[dict[str, Any]]) -> int:
    """How many people can still approve; without a list of names, any number can."""
    if not rule.by or any(one.startswith(ROLE) for one in rule.by):
        return rule.votes
    voted = {vote["by"] for vote in votes} | ({owner} if rule.different_person else set())
    return sum(one not in voted for one in rule.by)


def can_be_met(rule: Rule, owner: str) -> bool:
    """Whether enough people may approve what this owner's run asks for."""
    return _left(rule, owner, []) >= rule.votes


def votes_words(details: Mapping[str, Any], answer: Mapping[str, Any]) -> str:
    """The votes so far, as in `1 of 2 approved: alice`; empty if one vote decides."""
    rule, votes = rule_of(details), votes_of(answer)
    if not rule.counts and not votes:
        return ""
    yes = [vote["by"] for vote in votes if vote["decision"] == APPROVE]
    no = [vote["by"] for vote in votes if vote["decision"] == DENY]
    words = f"{len(yes)} of {rule.votes} approved" + (f": {', '.join(yes)}" if yes else "")
    return words + (f"; denied by {', '.join(no)}" if no else "")


def decided_words(answer: Mapping[str, Any], by: str) -> str:
    """What was decided and by whom, as in `approved by alice and bob`. `by` is the person whose vote decided."""
    decision = str(answer.get("decision", ""))
    people = [vote["by"] for vote in votes_of(answer) if vote["decision"] == decision] or [by]
    return f"{_DECIDED.get(decision, decision)} by {' and '.join(filter(None, [', '.join(people[:-1]), people[-1]]))}"
