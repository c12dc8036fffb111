"""`cuebook audit`: shows a run's evidence and verifies its journal; also writes and reads exported runs."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import click
import msgspec

from cuebook.dialects import registry
from cuebook.kernel.answers import IN_ADVANCE, UNATTENDED
from cuebook.kernel.errors import BadInput
from cuebook.kernel.journal import Verdict
from cuebook.kernel.run import Totals
from cuebook.service.audit.evidence import Act, Decision, Evidence, Named, StepEvidence
from cuebook.service.audit.export import Audited, Export, audited, read_export, write_export
from cuebook.service.audit.signature import SignedFile, is_signature, key_of
from cuebook.service.runs import objects as run_objects
from cuebook.service.service import Principal, Service
from cuebook.surfaces import display
from cuebook.surfaces.cli import completion, options, session
from cuebook.surfaces.cli.commands.evidence import signature_words, unchecked_words
from cuebook.surfaces.cli.commands.resume import RUN
from cuebook.surfaces.cli.options import Given, command, configuration
from cuebook.surfaces.cli.terminal import views
from cuebook.surfaces.cli.terminal.output import complain, say
from cuebook.surfaces.cli.terminal.progress import MARKS
from cuebook.wiring.evidence import signer_of

_DIGEST = 12
"""Number of digest characters to show; --json prints the whole digest."""


@command(
    "audit",
    [
        click.Argument(["run"], required=False, shell_complete=completion.runs()),
        click.Option(["--file"], metavar="FILE", help="Read an exported run; no store is needed."),
        click.Option(["--export"], metavar="FILE", help="Write the whole journal to this file, for others to verify."),
        click.Option(["--verify"], is_flag=True, help="Only check the journal."),
        click.Option(
            ["--admin"], is_flag=True, help="Show administrative acts instead: sign-ins, users, keys, policy."
        ),
        click.Option(
            ["--since"], metavar="TIME", help="With --admin or --export: only since then, as in 30d or 2026-11-01."
        ),
        options.AS_USER,
        options.STORE,
        options.AS_JSON,
    ],
)
def audit_command(given: Given) -> int:
    """Show what a run did, who allowed it and what the results were, and check its journal.

    For each step, the output lists the actions as they were performed (with handles instead of secrets), the decisions
    made by the policy and by people, the rules behind them, attempts, times, output digests, checks and cost. The command
    then verifies the journal's hash chain and prints its head: store the head elsewhere to detect a rewrite of the whole
    journal. It also checks the stored texts that the journal refers to, including those sent to a model: a changed text
    breaks the journal, and missing texts are listed.

    --export writes everything to one file, which `cuebook audit --file FILE` verifies on any machine. With `key` in [evidence],
    it is signed, and `cuebook evidence verify FILE --key PUBLIC_KEY` proves with which key. --verify only checks
    the journal, and that the run's status, steps and waits match it. Exit code 1 means that the journal is broken.

    --admin lists what was done to the installation rather than by a run: sign-ins and refused ones, changes of users,
    roles, tokens, keys, secrets' names, policy, schedules and budgets, and runs that were removed, each with who, when and
    from where. It has a chain of its own. Without RUN, --export writes the audits of all runs and these acts to one file.

    Examples:

    \b
    cuebook audit RUN --verify
    cuebook audit --admin --since 7d
    cuebook audit --export october.jsonl --since 31d
    """
    if given["file"]:
        if given["run"] or given["export"] or given["verify"] or given["admin"] or given["since"]:
            raise BadInput("--file cannot be combined with RUN, --export or --verify.", fix="Pass only --file FILE.")
        return _of_file(given)
    if given["run"] and (given["admin"] or given["since"]):
        raise BadInput("--admin and --since cannot be combined with RUN.", fix="Leave out RUN.")
    if given["verify"] and given["export"]:
        raise BadInput("--verify and --export are mutually exclusive.", fix="Choose one.")
    if given["export"] and not given["run"]:
        from cuebook.surfaces.cli.commands import admin_audit

        return admin_audit.export_collection(given)
    if given["admin"]:
        from cuebook.surfaces.cli.commands import admin_audit

        return admin_audit.admin_audit(given)
    if not given["run"]:
        raise BadInput(
            "The argument RUN is missing.", fix="`cuebook runs` lists the runs; --file FILE reads an exported run."
        )
    if given["verify"]:
        return _verified(given)

    async def look(service: Service) -> int:
        who = await session.acting(service, given)
        if not given["export"]:
            return _shown(given, await service.audit(given["run"], who))
        return _written(given, await service.export(given["run"], who), who, service.clock())

    async def work() -> int:
        async with session.opened(session.wiring_of(given)) as service:
            return await look(service)

    return session.perform(work())


@command("verify", [RUN, options.STORE, options.AS_JSON])
def verify_command(given: Given) -> int:
    """Check that a run's journal is unchanged and matches the run's state.

    The same as `cuebook audit RUN --verify`. Prints the head of the hash chain: store it elsewhere to detect a rewrite of
    the whole journal. Exit code 1 means that the journal is broken, or that the run's status, a step or a wait does not
    match it.
    """
    return _verified(given)


def _verified(given: Given) -> int:
    async def look(service: Service) -> int:
        row = await service.get(given["run"])
        verdict = await service.verify(row.id)
        broken = verdict.broken_at is not None
        if given["as_json"]:
            sys.stdout.write(views.json_line({"run": row.id, **msgspec.to_builtins(verdict)}))
        elif broken:
            complain(f"cuebook: run {row.id} is broken at record {verdict.broken_at}: {verdict.problem}.")
        else:
            say(f"run {row.id}: {display.counted(verdict.records, 'record')}, unbroken, head {verdict.head}")
            for line in display.purge_lines(verdict):
                say(line)
            if verdict.missing:
                say(f"missing: {display.missing_texts(verdict)}")
        return 1 if broken else 0

    return session.look(given, look)


def _of_file(given: Given) -> int:
    """Shows the run, or verifies the runs and acts, of an exported file."""
    path = given["file"]
    try:
        with open(path, "rb") as file:
            from cuebook.service.audit.collection import is_collection

            if is_collection(file):
                from cuebook.surfaces.cli.commands.admin_audit import show_collection

                return show_collection(given, file)
            data = file.read()
            code = _shown(given, audited(read_export(data, path)))
            last = data.splitlines(keepends=True)[-1]
            if is_signature(last) and not given["as_json"]:
                say(unchecked_words(path, key_of(last)))
            return code
    except OSError as error:
        raise BadInput(f"--file: Cannot read {path}: {error.strerror}.", fix="Check the path.") from None


def _written(given: Given, export: Export, who: Principal, now: float) -> int:
    path, signer = given["export"], signer_of(configuration(given))
    try:  # only the owner may read the file, because it contains everything the run did
        with os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
            signed = SignedFile(file, signer)
            write_export(signed, export)
            key = signed.sign(who, now)
    except FileExistsError:
        raise BadInput(f"--export: {path} already exists.", fix="Choose a new file name.") from None
    except OSError as error:
        raise BadInput(f"--export: Cannot write {path}: {error.strerror}.", fix="Check the path.") from None
    written = {"run": export.run, "file": path, "records": len(export.records), "head": export.head, "key": key}
    if given["as_json"]:
        sys.stdout.write(views.json_line(written))
    else:
        say(f"run {export.run}: {display.counted(len(export.records), 'record')} in {path}, head {export.head}")
        say(signature_words(path, key))
    return 0


def _shown(given: Given, found: Audited) -> int:
    verdict = found.verdict
    broken = verdict.broken_at is not None
    if given["as_json"]:
        sys.stdout.write(views.json_line(as_object(found)))
    else:
        say("\n".join(_lines(found)))
    if broken:
        complain(f"cuebook: run {found.run} is broken at record {verdict.broken_at}: {verdict.problem}.")
    return 1 if broken else 0


def as_object(found: Audited) -> dict[str, Any]:
    made, verdict = found.evidence, found.verdict
    return {
        "run": found.run,
        "name": found.name,
        "owner": found.owner,
        **msgspec.to_builtins(made),
        "steps": [_step_object(step) for step in made.steps],
        "totals": run_objects.totals_object(made.totals),
        "chain": {
            "records": verdict.records,
            "purged": found.purged,
            "purges": msgspec.to_builtins(verdict.purges),
            "head": verdict.head,
            "unbroken": verdict.broken_at is None,
            "broken_at": verdict.broken_at,
            "problem": verdict.problem,
            "missing": verdict.missing,
        },
    }


def _step_object(step: StepEvidence) -> dict[str, Any]:
    cost = {} if step.cost is None else {"cost": run_objects.totals_object(step.cost)}
    return {**msgspec.to_builtins(step), **cost}


# --- as text --------------------------------------------------------------------------------------------


def _lines(found: Audited) -> Iterator[str]:
    verdict, counting = found.verdict, _counting(found.verdict)
    yield f"{found.name}, run {found.run}"
    if counting is not None:
        yield from _named([("broken", f"at record {verdict.broken_at}: {verdict.problem}. {_still_counts(counting)}")])
    if counting != 0:
        yield from _evidence_lines(found, "" if counting is None else f", as of record {counting}")
    yield ""
    purged = f", {found.purged:,} of them with purged content" if found.purged else ""
    whole = "unbroken" if verdict.broken_at is None else f"broken at record {verdict.broken_at}: {verdict.problem}"
    yield from _named(
        [
            ("chain", f"{display.counted(verdict.records, 'record')}{purged}, {whole}"),
            *[("purged", line.removeprefix("purged: ")) for line in display.purge_lines(verdict)],
            ("missing", display.missing_texts(verdict)),
            ("head", verdict.head),
        ]
    )


def _evidence_lines(found: Audited, as_of: str) -> Iterator[str]:
    """For a broken journal, `as_of` names the last valid record."""
    made = found.evidence
    yield from _named(list(_about(found, made, as_of)))
    for step in made.steps:
        yield ""
        yield from _step_lines(step, as_of, made.dialect)
    if made.interventions:
        yield "\ninterventions:"
        for one in made.interventions:
            by = f" by {one.by}" if one.by else ""
            where = f" at step {one.step}" if one.step else ""
            yield f"  {display.moment(one.at)}  {one.what}{where}{by}{_details_words(one.details)}"


def _counting(verdict: Verdict) -> int | None:
    """The number of valid records in a broken journal; None if the journal is unbroken."""
    return None if verdict.broken_at is None else min(verdict.records, verdict.broken_at - 1)


def _still_counts(counting: int) -> str:
    if not counting:
        return "There is no valid record before it."
    return f"The following is based on the {display.counted(counting, 'record')} before it."


def _details_words(details: Mapping[str, Any]) -> str:
    changed = {**details.get("values", {}), **details.get("settings", {})}
    record = f", from record {details['from_record']}" if "from_record" in details else ""
    values = f", with {_values_words(changed)}" if changed else ""
    reason = f": {details['reason']}" if "reason" in details else ""
    return f"{record}{values}{reason}"


def _values_words(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} = {display.short(_plain(value))}" for name, value in values.items())


def _named(lines: list[tuple[str, str]], indent: str = "") -> Iterator[str]:
    return (f"{indent}{name + ':':<15}{words}" for name, words in lines if words)


def _about(found: Audited, made: Evidence, as_of: str) -> Iterator[tuple[str, str]]:
    error = f": {made.error.message}" if made.error is not None else ""
    yield "status", f"{made.status.replace('_', ' ')}{as_of}{error}"
    if made.started is not None:
        took = f", ended {display.moment(made.ended)}" if made.ended is not None else ""
        yield "started", f"{display.moment(made.started)} by {found.owner}{took}"
    yield "forked from", made.parent
    yield "playbook", f"{made.dialect}, sha256 {made.playbook[:_DIGEST]}" if made.playbook else ""
    yield "policy", f"sha256 {made.policy[:_DIGEST]}" if made.policy else ""
    yield "inputs", _values_words(made.inputs)
    yield "cost", _cost(made.totals) if made.totals.calls else ""
    yield "processes", f"{len(made.drivers)} drove the run" if len(made.drivers) > 1 else ""


def _step_lines(step: StepEvidence, as_of: str, dialect: str) -> Iterator[str]:
    visit = f" (visit {step.visit})" if step.visit > 1 else ""
    reason = f": {step.reason}" if step.reason not in ("", step.status) else ""
    words = [f"{step.status.replace('_', ' ')}{reason}", *(["superseded by a retry"] if step.voided else [])]
    if step.started is not None and step.finished is not None:
        words.append(display.duration(step.finished - step.started))
    if step.cost is not None:
        words.append(_cost(step.cost))
    if step.step:
        yield f"{MARKS.get(step.status, '›')} {step.step}{visit}  {step.title}".rstrip()
        yield f"  {display.joined(words)}"
    else:
        yield "before the first step"
    yield from _named(
        [line for _, lines in sorted(_happened(step, as_of), key=lambda one: one[0]) for line in lines], "  "
    )
    yield from _named(list(_noted(step, dialect)), "  ")


def _happened(step: StepEvidence, as_of: str) -> Iterator[tuple[float, list[tuple[str, str]]]]:
    for decision in step.decisions:
        yield decision.opened, list(_decision_lines(decision, as_of))
    for act in step.acts:
        yield act.began or act.ended or 0.0, list(_act_lines(act))


def _decision_lines(decision: Decision, as_of: str) -> Iterator[tuple[str, str]]:
    yield "asked", " ".join(decision.prompt.split())
    own = ["the step asks for approval"] if decision.purpose == "step" else []
    yield "because", "; ".join(dict.fromkeys((*own, *decision.rules)))
    if not decision.decision:
        yield "decided", f"not yet{as_of}"
        return
    after = f", after {display.duration(decision.closed - decision.opened)}" if decision.closed is not None else ""
    through = f" through {decision.through}" if decision.through else ""
    by = f" by {decision.by}{through}" if decision.by else ""
    yield "decided", f"{decision.decision}{by}{after}{f': {decision.reason}' if decision.reason else ''}"
    for vote in decision.votes:
        through = f" through {vote['through']}" if vote.get("through") else ""
        why = f": {vote['reason']}" if vote.get("reason") else ""
        yield "vote", f"{vote['decision']} by {vote['by']}{through}, {display.moment(vote['at'])}{why}"
    if decision.allows:
        lasting = "for this run" if decision.lasts == "run" else "from then on, in all runs"
        listed = "; ".join(f"{one['domain']} '{one['pattern']}' ({one['id']})" for one in decision.allows)
        yield "allowed", f"{lasting}: {listed}"


def _act_lines(act: Act) -> Iterator[tuple[str, str]]:
    again = f" (attempt {act.attempt})" if act.attempt > 1 else ""
    voided = " (superseded by a retry)" if act.voided else ""
    yield "did" if act.begun else "requested", f"{action_words(act)}{again}{voided}"
    uses = act.action.get("secrets", ())
    yield "secrets", ", ".join(f"{one['at']} from {one['handle']}" for one in uses)
    ruling = act.ruling
    if ruling:
        approved = f", as approved ({str(ruling['approved'])[:_DIGEST]})" if ruling.get("approved") else ""
        overrides = f", by override {', '.join(ruling['overrides'])}" if ruling.get("overrides") else ""
        yield (
            "policy",
            f"{ruling['decision']}{approved}{overrides}: {'; '.join(ruling['rules']) or 'nothing to decide'}",
        )
    words = outcome_words(act.outcome) if act.outcome else "unknown: no outcome was recorded"
    took = [display.duration(act.ended - act.began)] if act.began is not None and act.ended is not None else []
    yield "outcome", display.joined([words, *took])


def action_words(act: Act) -> str:
    """The action in one line."""
    action = act.action
    match act.kind:
        case "RunCommand" if "argv" in action:
            where = f" in {action['cwd']}" if action.get("cwd") else ""
            return f"run {shlex.join(map(_plain, action['argv']))}{where}"
        case "SendHttp" if "url" in action:
            return f"send {action['method'].upper()} {_plain(action['url'])}"
        case "Browse" if "action" in action:
            return f"in the browser: {_plain(display.browsing_words(action['action'], action.get('arguments', {})))}"
        case "CallNode" if "capability" in action:
            words = display.node_words(action["capability"], action["action"], action.get("arguments", {}))
            return (
                f"on {('node ' + action['node']) if action.get('node') else 'a node'}: {_plain(display.short(words))}"
            )
        case "CallTool" if "tool" in action:
            return f"call {action['tool']} {display.short(views.json_text(action.get('arguments', {})))}"
        case "AskModel":
            by = f", answered by {_plain(action['by'])}" if action.get("by") else ""
            through = f" through {_plain(action['through'])}" if action.get("through") else ""
            return f"ask {act.model or 'the model'}{by}{through}"
        case "ReadSource":
            return f"read {action.get('subject', '')}".rstrip()
        case "AskHuman":
            return "ask a person"
        case "Send" if "to" in action:
            return f"send a message to {action['to']}"
        case kind:
            return f"{_VERBS.get(kind, kind)} {action.get('subject', '')}".rstrip()


_VERBS = {
    "RunCommand": "run",
    "SendHttp": "send a request:",
    "CallTool": "call",
    "Browse": "in the browser:",
    "CallNode": "on the node",
    "RunPlaybook": "run the playbook",
    "RunPython": "call the function",
    "Send": "send a message to",
}
"""Verbs for effects whose journal records contain only what the author can see."""


def outcome_words(outcome: Mapping[str, Any]) -> str:
    parts: list[str] = []
    for name, value in outcome.items():
        match name, value:
            case "failed", {"code": code, "message": message}:
                parts.append(f"failed ({code}): {' '.join(str(message).split())}")
            case "in_doubt", {"code": code, "message": message}:
                why = f" ({code})" if code != "in_doubt" else ""
                parts.append(f"in doubt{why}: {' '.join(str(message).split())}")
            case "exit_code" | "status", _:
                parts.append(f"{name.replace('_', ' ')} {value}")
            case "signal", _:
                parts.append(f"killed by {value}")
            case "done", True:
                parts.append("done")
            case "calls", _:
                parts.append(f"calls {', '.join(value)}")
            case "answer" | "url" | "seconds", _:
                parts += [_answered(outcome.get("by") or "default")] if name == "answer" else []
            case "by" | "finish" | "retries" | "sandbox", _:
                parts += [f"in {value}"] if name == "sandbox" and value != "none" else []
            case _, {"sha256": _, "characters": _}:
                parts.append(f"{name} {_text_words(msgspec.convert(value, Named))}")
    return "; ".join(parts)


def _text_words(text: Named) -> str:
    cut = ", truncated" if text.truncated else ""
    return f"of {display.counted(text.characters, 'character')}{cut} (sha256 {text.sha256[:_DIGEST]})"


def _noted(step: StepEvidence, dialect: str) -> Iterator[tuple[str, str]]:
    for name, several in step.notes.items():
        for data in several:
            yield name, registry.note(dialect, name, data).words
    for message in step.warnings:
        yield "warning", message
    if step.values:
        yield "values", ", ".join(step.values)
    if step.output is not None:
        yield "output", _text_words(step.output).removeprefix("of ")


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else views.json_text(value)


def _cost(totals: Totals) -> str:
    cost = display.cost_of(totals)
    return f"{totals.input:,} tokens in, {totals.output:,} out, {'cost unknown' if cost == 'unknown' else cost}"


_AUTOMATIC = {IN_ADVANCE: "answered in advance", UNATTENDED: "answered by default, because the run is unattended"}


def _answered(by: str) -> str:
    return _AUTOMATIC.get(by, f"answered by {by}")
