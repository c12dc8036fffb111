"""The rules of a policy for runs as a whole: who may cancel them, and which steps must declare a postcondition."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from cuebook.dialects.findings import InvalidPlaybook
from cuebook.gate.policy import Layer, Policy, bundle_from, load_bundle
from cuebook.gate.roles import NotAllowed, Principal
from cuebook.kernel.errors import BadInput
from cuebook.kernel.run import Settings
from tests.gate.harness import GateHarness, doing
from tests.support.runtime import ALLOWED, RuntimeHarness

SAM, ADA = Principal("sam", roles=frozenset({"runner"})), Principal("ada", roles=frozenset({"runner"}))
APPROVER = Principal("pat", roles=frozenset({"approver"}))
ADMIN = Principal("root", roles=frozenset({"admin"}))
VIEWER = Principal("vic", roles=frozenset({"viewer"}))
SETTINGS = Settings(model="test/echo")


def layer(values: Mapping[str, object], *, may_allow: bool = True) -> Layer:
    return Layer("user" if may_allow else "project", "p.toml", bundle_from(values), may_allow)


# --- reading and merging ----------------------------------------------------------------------------------------------


def test_a_file_says_it_in_toml_and_in_yaml(tmp_path: Path) -> None:
    toml, yaml = tmp_path / "p.toml", tmp_path / "p.yaml"
    toml.write_text('postconditions = "require"\n[runs]\ncancel = "owner"\n')
    yaml.write_text("postconditions: require\nruns: {cancel: owner}\n")
    for path in (toml, yaml):
        bundle, _ = load_bundle(path)
        assert (bundle.postconditions, bundle.runs.cancel) == ("require", "owner")


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"postconditions": "always"}, "postconditions must be one of"),
        ({"postconditions": True}, "postconditions must be one of"),
        ({"runs": {"cancel": "everyone"}}, "runs.cancel must be one of"),
        ({"runs": {"stop": "owner"}}, "there is no setting 'runs.stop'"),
        ({"runs": "owner"}, "runs must be a table"),
    ],
)
def test_a_mistake_is_reported(values: dict[str, object], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        bundle_from(values)


@pytest.mark.parametrize("may_allow", [True, False])
def test_the_strictest_layer_counts_and_none_can_loosen_it(may_allow: bool) -> None:
    strict, lax = (
        {"postconditions": "require", "runs": {"cancel": "approver"}},
        {
            "postconditions": "warn",
            "runs": {"cancel": "runner"},
        },
    )
    for layers in ((layer(strict), layer(lax, may_allow=may_allow)), (layer(lax), layer(strict, may_allow=may_allow))):
        policy = Policy(layers)
        assert (policy.postconditions, policy.cancel) == ("require", "approver")
    assert (Policy().postconditions, Policy().cancel) == ("warn", "runner")


def test_a_merge_drops_no_section() -> None:
    policy = Policy((layer({"approvals": {"different_person": True}}), layer({"runs": {"cancel": "owner"}})))
    policy = policy.with_playbook({"allowed_domains": ["example.com"]}, "book")
    assert policy.approvals.different_person
    assert policy.cancel == "owner"
    assert Policy.from_snapshot(policy.snapshot()) == policy


def test_a_policy_of_an_older_run_is_read() -> None:
    assert (
        Policy.from_snapshot('{"layers":[{"whose":"user","where":"x","bundle":{},"may_allow":true}]}').cancel
        == "runner"
    )


# --- who may cancel -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "may"),
    [
        ("runner", {"sam", "ada", "root"}),
        ("owner", {"sam", "root"}),
        ("approver", {"pat", "root"}),
    ],
)
async def test_who_may_cancel_is_for_the_policy_to_say(tmp_path: Path, rule: str, may: set[str]) -> None:
    harness = GateHarness(tmp_path, {"runs": {"cancel": rule}}, make=doing())
    for who in (SAM, ADA, APPROVER, ADMIN, VIEWER):
        row = await harness.service.start_program("# T\n\n## STEP 1: A\n\nx\n", "t.md", {}, SETTINGS, SAM)
        if who.name in may:
            await harness.service.cancel(row.id, "", who)
        else:
            with pytest.raises(NotAllowed):
                await harness.service.cancel(row.id, "", who)
    await harness.close()


async def test_a_run_is_held_to_the_policy_it_began_with_and_to_todays(tmp_path: Path) -> None:
    harness = GateHarness(tmp_path, {"runs": {"cancel": "owner"}}, make=doing())
    first = await harness.service.start_program("# T\n\n## STEP 1: A\n\nx\n", "t.md", {}, SETTINGS, SAM)
    harness.allow({"runs": {"cancel": "runner"}})
    with pytest.raises(NotAllowed, match="sam started it"):
        await harness.service.cancel(first.id, "", ADA)
    second = await harness.service.start_program("# T\n\n## STEP 1: A\n\nx\n", "t.md", {}, SETTINGS, SAM)
    harness.allow({"runs": {"cancel": "approver"}})
    with pytest.raises(NotAllowed, match="role approver"):
        await harness.service.cancel(second.id, "", SAM)
    await harness.close()


async def test_a_cancellation_that_the_policy_refuses_changes_nothing(runtime: RuntimeHarness) -> None:
    runtime.rule(ALLOWED + '[runs]\ncancel = "approver"\n')
    waiting = await runtime.run("name: W\nsteps:\n  - {id: a, command: cli true, approval: required}\n", SAM)
    envelope = await runtime.ask({"action": "cancel", "runId": waiting["runId"]}, SAM)
    assert envelope["error"]["code"] == "not_allowed"
    assert len(await runtime.service.inbox()) == 1
    assert (await runtime.ask({"action": "cancel", "runId": waiting["runId"]}, APPROVER))["status"] == "cancelled"


# --- postconditions -------------------------------------------------------------------------------------------------------

CHANGING = """
name: Changing
steps:
  - id: look
    command: cli echo '{"made":true}'
    effect: read
  - id: change
    command: cli tee made.txt
    stdin: $look.stdout
"""
CHECKED = CHANGING + "    postcondition: {type: json_path, path: $.made, equals: true}\n"


async def test_a_changing_step_without_a_postcondition_is_refused_where_the_policy_requires_one(
    runtime: RuntimeHarness,
) -> None:
    assert (await runtime.run(CHANGING))["status"] == "ok", "unless something is said, it is only warned of"
    (runtime.work / "made.txt").unlink()
    runtime.rule('postconditions = "require"\n' + ALLOWED)
    before = len(await runtime.rows())
    envelope = await runtime.run(CHANGING)
    assert envelope["error"]["code"] == "invalid_request"
    assert "change" in envelope["error"]["message"]
    assert "look" not in envelope["error"]["message"]
    assert len(await runtime.rows()) == before
    assert not runtime.made()
    assert (await runtime.run(CHECKED))["status"] == "ok"


async def test_a_run_from_before_the_policy_required_it_is_not_begun_again(runtime: RuntimeHarness) -> None:
    done = await runtime.run(CHANGING)
    (runtime.work / "made.txt").unlink()
    runtime.rule('postconditions = "require"\n' + ALLOWED)
    before = len(await runtime.rows())
    with pytest.raises(InvalidPlaybook, match="requires a postcondition"):
        await runtime.service.restart(done["runId"], "change")
    assert len(await runtime.rows()) == before
    assert not runtime.made()


async def test_a_projects_file_may_require_it_and_cannot_take_it_back(runtime: RuntimeHarness) -> None:
    (runtime.work / "cuebook.policy.toml").write_text('postconditions = "require"\n')
    assert (await runtime.run(CHANGING))["error"]["code"] == "invalid_request"
    (runtime.work / "cuebook.policy.toml").write_text('postconditions = "warn"\n')
    runtime.rule('postconditions = "require"\n' + ALLOWED)
    assert (await runtime.run(CHANGING))["error"]["code"] == "invalid_request"
