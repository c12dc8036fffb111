"""Standing permissions hold only for the runs, the playbook and the policy for which they were given."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from cuebook.gate.standing_permissions import Allowed, Standing, effect_key, standing_overrides
from cuebook.kernel.context import digest_of
from cuebook.kernel.effects import AskModel, Effect, RunCommand, SecretUse
from cuebook.kernel.run import RunRow

POLICY = "the policy"
TOUCH = RunCommand(("touch", "made"), env={"TO": "staging"})
STANDING = Standing(
    "schedule:nightly",
    "digest",
    digest_of(POLICY),
    (
        Allowed("command", "touch made", "make", effect_key(TOUCH)),
        Allowed("model", "local/small", "think", effect_key(AskModel("Think."))),
    ),
    "ann",
    100.0,
    200.0,
)


def run(**more: Any) -> RunRow:
    given = {"playbook": "digest", "trigger": "schedule:nightly", "created": 150.0, **more}
    return RunRow(
        id="r", tenant="local", owner="bob", dialect="pipeline", interpreter=1, name="x.yml", updated=0.0, **given
    )  # fmt: skip


def allowed(
    row: RunRow, snapshot: str | None = POLICY, now: float = 160.0, effect: Effect = TOUCH
) -> list[tuple[str, str, str]]:
    records = {STANDING.trigger: msgspec.to_builtins(STANDING)}
    return [(one.domain, one.pattern, one.by) for one in standing_overrides(records, row, snapshot, effect, now)]


def test_it_allows_what_it_lists_to_the_runs_of_its_trigger() -> None:
    assert allowed(run()) == [("command", "touch made", "ann")]


@pytest.mark.parametrize(
    "row",
    [
        run(playbook="other"),
        run(trigger="schedule:other"),
        run(trigger=""),
        run(parent="p"),
        run(caller="c"),
        run(created=99.0),
    ],
    ids=["edited", "another trigger", "a person's", "a fork", "a child", "started before it was given"],
)
def test_it_does_not_hold_for_another_run(row: RunRow) -> None:
    assert allowed(row) == []


def test_it_ends_with_its_time_and_with_the_policy() -> None:
    assert allowed(run(), now=200.0) == []
    assert allowed(run(), "another policy") == []
    assert allowed(run(), None) == []


@pytest.mark.parametrize(
    "effect",
    [
        RunCommand(("touch", "made"), env={"TO": "staging"}, stdin="more"),
        RunCommand(("touch", "made"), env={"TO": "production"}),
        RunCommand(("touch", "made"), env={"TO": "staging"}, cwd="elsewhere"),
        RunCommand(("touch", "made"), env={"TO": "staging"}, secrets=(SecretUse("env.KEY", "env:KEY"),)),
    ],
    ids=["another input", "another environment", "another folder", "a secret"],
)
def test_the_same_command_with_something_else_is_another_action(effect: Effect) -> None:
    assert allowed(run(), effect=effect) == []


def test_what_a_playbook_says_about_asking_and_repeating_changes_no_action() -> None:
    again = RunCommand(TOUCH.argv, env=TOUCH.env, attempt_at="make", idempotent=True, preview={"output of a": "text"})
    assert allowed(run(), effect=again) == allowed(run())


def test_a_model_may_be_asked_whatever_for() -> None:
    assert allowed(run(), effect=AskModel("Think again.")) == [("model", "local/small", "ann")]
