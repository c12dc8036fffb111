"""Votes: who is counted, and when they decide."""

from __future__ import annotations

from typing import Any

import pytest

from cuebook.kernel.errors import AlreadyVoted, BadInput
from cuebook.kernel.votes import Rule, can_be_met, counted, decided_words, is_listed, rule_of, votes_words

TWO = {"rule": {"votes": 2}, "digest": "d"}


def vote(details: dict[str, Any], before: dict[str, Any], by: str, decision: str = "approve") -> tuple[bool, Any]:
    return counted(details, "ada", before, {"decision": decision, "digest": "d", "reason": f"{by}s"}, by, 1.0)


def test_two_people_decide_and_each_is_kept() -> None:
    done, first = vote(TWO, {}, "bob")
    assert not done
    assert votes_words(TWO, first) == "1 of 2 approved: bob"
    done, second = vote(TWO, first, "cleo")
    assert done
    assert second["decision"] == "approve"
    assert [(one["by"], one["reason"]) for one in second["votes"]] == [("bob", "bobs"), ("cleo", "cleos")]


def test_a_decision_names_everyone_who_voted_for_it() -> None:
    _, first = vote(TWO, {}, "bob")
    approved, denied, changes = (vote(TWO, first, "cleo", one)[1] for one in ("approve", "deny", "changes"))
    assert decided_words(approved, "cleo") == "approved by bob and cleo"
    assert decided_words(denied, "cleo") == "denied by cleo"
    assert decided_words(changes, "cleo") == "changes requested by cleo"
    assert decided_words({"decision": "approve"}, "bob") == "approved by bob"


def test_a_person_votes_once_even_with_another_decision() -> None:
    _, first = vote(TWO, {}, "bob")
    with pytest.raises(AlreadyVoted, match="bob has already voted: approve"):
        vote(TWO, first, "bob", "deny")


def test_a_vote_for_something_else_is_refused() -> None:
    with pytest.raises(BadInput):
        counted(TWO, "ada", {}, {"decision": "approve", "digest": "other"}, "bob", 1.0)


def test_one_denial_denies_unless_the_rule_says_otherwise() -> None:
    assert vote(TWO, {}, "bob", "deny")[1]["decision"] == "deny"
    lenient = {"rule": {"votes": 2, "denials": 2}, "digest": "d"}
    done, first = vote(lenient, {}, "bob", "deny")
    assert not done
    assert votes_words(lenient, first) == "0 of 2 approved; denied by bob"
    done, second = vote(lenient, first, "cleo", "deny")
    assert done
    assert second["decision"] == "deny"


def test_it_is_denied_as_soon_as_too_few_named_people_are_left() -> None:
    details = {"rule": {"votes": 2, "denials": 3, "by": ["bob", "cleo"]}, "digest": "d"}
    done, first = vote(details, {}, "bob", "deny")
    assert done
    assert first["decision"] == "deny"


def test_one_request_for_changes_decides_at_once() -> None:
    _, first = vote(TWO, {}, "bob")
    done, second = vote(TWO, first, "cleo", "changes")
    assert done
    assert second["decision"] == "changes"


def test_names_and_roles_say_who_is_listed() -> None:
    assert is_listed((), "anyone", ())
    assert is_listed(("bob",), "bob", ())
    assert not is_listed(("bob",), "cleo", ("admin", "approver"))
    assert is_listed(("role:approver",), "cleo", ("approver",))
    assert is_listed(("role:approver",), "cleo", ("admin",))
    assert not is_listed(("role:admin",), "cleo", ("approver",))


def test_a_rule_that_no_one_can_meet_is_recognised() -> None:
    rule = Rule(by=("ada", "bob"), votes=2, different_person=True)
    assert not can_be_met(rule, "ada")
    assert can_be_met(rule, "cleo")
    assert can_be_met(Rule(by=("ada", "role:admin"), votes=2, different_person=True), "ada")


def test_the_policy_adds_a_different_person_to_the_rule() -> None:
    assert rule_of({"different_person": True, "rule": {"votes": 2}}) == Rule(votes=2, different_person=True)
    assert rule_of({}) == Rule()
