"""The cases in tests/vectors/program about single replies. Their README says how they are read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cuebook.dialects.program.listing import Listing, Position
from cuebook.dialects.program.model import Note, Param
from cuebook.dialects.program.reply.items import Artifact, Assign, Call, Return, SaveArtifact, Step, Trigger, Var, Yield
from cuebook.dialects.program.verify.corrections import retry_of
from cuebook.dialects.program.verify.verdicts import (
    RULES,
    Action,
    CheckTriggers,
    KnownTrigger,
    LoadContent,
    Signature,
    State,
    Summarise,
    Verdicts,
)
from cuebook.dialects.program.verify.verifier import verify_reply
from cuebook.dialects.program.verify.watch import ReplyWatch, verdicts_of, watch_arguments
from cuebook.formats.yaml import read_yaml

VECTORS = Path(__file__).resolve().parents[3] / "vectors/program"
FILES = ("structure", "steps", "values", "computed", "triggers", "probes")
GIVEN = {"case", "rule", "keeps", "listing", "playbook", "position", "state", "reply", "expect"}


def found() -> Iterator[Any]:
    for name in FILES:
        for number, case in enumerate(read_yaml((VECTORS / f"{name}.yaml").read_text(encoding="utf-8")).plain):
            assert set(case) <= GIVEN, f"{name}: {sorted(set(case) - GIVEN)}"
            yield pytest.param(case, id=f"{name}-{number}-{case['rule']}-{case['case'].replace(' ', '_')[:50]}")


CASES = list(found())


@pytest.mark.parametrize("case", CASES)
def test_case(case: dict[str, Any]) -> None:
    assert list(differences(case, verified(case))) == []


@pytest.mark.parametrize("case", CASES)
def test_the_stream_is_stopped_where_the_reply_is_refused(case: dict[str, Any]) -> None:
    """Character by character: the shown text ends before the refused part, and nothing after the end is requested."""
    text, whole = case["reply"], verified(case)
    watch = ReplyWatch.of(**watch_arguments(listing_of(case), position_of(case), state_of(case)))
    shown, stopped = "", None
    for at, letter in enumerate(text):
        seen = watch.feed(letter)
        shown += seen.release
        if seen.stop:
            stopped = at
            break
    shown += watch.finish()
    assert text.startswith(shown)
    rejected = whole.rejected
    if rejected is None:
        last = whole.actions[-1]
        assert len(shown) >= last.end if isinstance(last, Yield) else shown.rstrip() == text.rstrip()
    elif rejected.rule not in ("S3", "C13", "V1"):
        assert len(shown) <= rejected.start
        assert stopped is not None or rejected.rule == "S2"


@pytest.mark.parametrize("case", CASES)
def test_a_reply_verified_while_streaming_is_not_verified_again(case: dict[str, Any]) -> None:
    listing, position, state = listing_of(case), position_of(case), state_of(case)
    question = watch_arguments(listing, position, state)
    watch, text = ReplyWatch.of(**question), ""
    for at in range(0, len(case["reply"]), 7):
        text += case["reply"][at : at + 7]
        if watch.feed(case["reply"][at : at + 7]).stop:
            break
    watch.finish()
    assert verdicts_of(question, text) == verify_reply(listing, position, state, text)


@pytest.mark.parametrize("case", [one for one in CASES if ":R" in str(one.values[0]["expect"]["verdicts"])])
def test_a_refusal_contains_everything_the_model_needs(case: dict[str, Any]) -> None:
    result, listing = verified(case), listing_of(case)
    assert result.rejected is not None
    retry = retry_of(result, listing.name, case["reply"])
    assert RULES[retry.rule][1] in retry.text
    assert result.rejected.words in retry.text
    for line in result.rejected.legal:
        assert f"{listing.name}:{line.number}:{line.code} {line.text}".rstrip() in retry.text
    for action in result.actions:
        if isinstance(action, Var):
            assert f"${action.name} was set" in retry.applied
        if isinstance(action, Step):
            assert f"step {action.playbook}:{action.line}:{action.code}".rstrip(":") in retry.applied


def test_every_rule_is_broken_once_and_kept_once() -> None:
    rules = {*RULES, "S4"}
    kept = {one.values[0]["rule"] for one in CASES if one.values[0].get("keeps")}
    broken = {one.values[0]["rule"] for one in CASES if not one.values[0].get("keeps")}
    assert rules - kept == set()
    assert rules - broken == {"S4"}  # what a string holds has no effect: there is nothing to break
    for one in CASES:
        case = one.values[0]
        about = {verdict.partition(":")[0] for verdict in case["expect"]["verdicts"]} | {case["expect"].get("because")}
        assert (case["rule"] in about) != bool(case.get("keeps")) or case["rule"] in ("C7", "C8"), case["case"]


def test_no_verdict_has_a_policy_that_its_rule_lacks() -> None:
    for one in CASES:
        for verdict in verified(one.values[0]).verdicts:
            assert verdict.policy in RULES[verdict.rule][0]


# --- reading a case ------------------------------------------------------------------------------------------


def verified(case: Mapping[str, Any]) -> Verdicts:
    return verify_reply(listing_of(case), position_of(case), state_of(case), case["reply"])


def listing_of(case: Mapping[str, Any]) -> Listing:
    about = dict(case.get("playbook", {}))
    rows = []
    for line in case["listing"]:
        number, _, rest = line.partition(":")
        code, _, text = rest.partition(" ")
        rows.append((number, code, text))
    params = tuple(Param(*one.split(":")) for one in about.pop("params", ()))
    notes = tuple(Note(id, text) for id, text in about.pop("notes", {}).items())
    return Listing.of_rows(about.pop("name", "Main"), rows, params=params, notes=notes, **about)


def position_of(case: Mapping[str, Any]) -> Position:
    line, status, *more = case.get("position", " arrived").split(" ")
    return Position(line, status, settled=True if more == ["settled"] else None)


def state_of(case: Mapping[str, Any]) -> State:
    given = dict(case.get("state", {}))
    if "playbooks" in given:
        given["playbooks"] = {name: signature(params) for name, params in given["playbooks"].items()}
    if "triggers" in given:
        given["triggers"] = {id: KnownTrigger(*text.split(" ", 1)) for id, text in given["triggers"].items()}
    given["said"] = tuple(given.get("said", ()))
    given["agents"] = tuple(given["agents"]) if "agents" in given else None
    if given.pop("last", "") == "same":
        inbox = given.pop("inbox", 0)
        before = verify_reply(listing_of(case), position_of(case), State(**given), case["reply"])
        return State(**given, inbox=inbox, last=before.progress)
    return State(**given)


def signature(params: list[str]) -> Signature:
    return Signature(tuple(Param(name.rstrip("?"), has_default=name.endswith("?")) for name in params))


# --- comparing -----------------------------------------------------------------------------------------------


def differences(case: Mapping[str, Any], result: Verdicts) -> Iterator[str]:
    expect = dict(case["expect"])
    first = result.verdicts[0] if result.verdicts else None
    rejected = result.rejected
    have: dict[str, Any] = {
        "verdicts": list(result.rules),
        "because": rejected.because if rejected else None,
        "legal": [line.number for line in rejected.legal] if rejected else [],
        "at": case["reply"][first.start : first.end].strip() if first else "",
        "actions": [text for action in result.actions if (text := action_text(action))],
        "position": standing(result.position),
        "ends": ended(result),
        "values": result.values,
        "returns": result.returns,
        "summary": result.summary,
    }
    for words in expect.pop("words", ()):
        if first is None or words not in first.words:
            yield f"words: {words!r} is not in {first.words if first else None!r}"
    for name, wanted in expect.items():
        if have[name] != wanted or msgspec.json.encode(have[name]) != msgspec.json.encode(wanted):
            yield f"{name}: {have[name]!r} is not {wanted!r}; {[verdict.words for verdict in result.verdicts]}"


def standing(position: Position) -> str:
    return f"{position.line} {position.status}{' settled' if position.settled else ''}"


def ended(result: Verdicts) -> str | None:
    match result.terminator:
        case None:
            return None
        case Return():
            return "return"
        case Yield(target, name):
            return f"{target} {name}".strip()


def action_text(action: Action) -> str:
    match action:
        case Step(_, line, code):
            return f"step {line} {code}" if action.is_line else ""
        case Var(name):
            return f"set {name}"
        case Assign(name, call):
            return f"queue {name} = {call.name}"
        case Call(name):
            return f"queue {name}"
        case Artifact(name):
            return f"save {name}"
        case SaveArtifact(name):
            return f"save {getattr(name, 'value', None) or getattr(name, 'name', '')}"
        case Return():
            return "return"
        case Trigger(playbook, id):
            return f"trigger {playbook}:{id}"
        case CheckTriggers():
            return "check"
        case LoadContent(name):
            return f"load {name}"
        case Summarise():
            return "summarise"
        case Yield(target, name):
            return f"yield {target} {name}".strip()
    return ""
