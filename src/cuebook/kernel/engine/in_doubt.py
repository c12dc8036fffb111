"""Effects in doubt: they began, but it is unknown whether they happened. Someone reviews them and decides what to
do."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from cuebook.kernel.effects import OUTPUT_OF, Acting, CallNode, CallTool, Effect, PromptAgent, RunCommand, SendHttp
from cuebook.kernel.engine.approval import CANCELLED, CUT_OFF
from cuebook.kernel.events import WaitClosed
from cuebook.kernel.journal import Key, outcome_from
from cuebook.kernel.outcomes import UNANSWERED, AnyOutcome, Failed
from cuebook.kernel.ports import Fate
from cuebook.kernel.run import Signal

if TYPE_CHECKING:
    from cuebook.kernel.engine.driver import Driver, Line


def unanswered(effect: Effect, outcome: AnyOutcome) -> Failed | None:
    """The failure that leaves an effect in doubt, if someone must decide; None if there is no doubt."""
    if not isinstance(outcome, Failed) or not outcome.details.get(UNANSWERED):
        return None
    asks = isinstance(effect, Acting) and not effect.repeatable and effect.doubt != "tell"
    return outcome if asks else None


async def settle(
    driver: Driver, line: Line, key: Key, effect: Effect, attempt: int, failed: Failed | None = None
) -> AnyOutcome | None:
    """Asks the user about an effect that began and has no outcome. Returns None if it should be performed again.

    `failed` is the failure that left it in doubt; None if its process exited in the meantime.
    """
    gate, words, parts = driver.engine.gate, words_of(effect), {**parts_of(effect), **_given(failed)}
    name, preview, whole = (words, parts, {}) if gate is None else gate.shown(words, parts)
    details: dict[str, Any] = {"effect": msgspec.to_builtins(effect), "attempt": attempt, "preview": preview}
    if failed is not None:
        details["failed"] = {"code": failed.code, "message": failed.message, "fix": failed.fix}
    late = driver.waits.late_outcome(key)
    if late is not None:
        details["late"] = late
    if failed is None:
        why = reason(await driver.engine.store.fate(driver.recorded.begun_by.get(key, "")))
        asked = f"It is not known whether this happened, because {why}: {name}"
    else:
        asked = f"{failed.message} It is not known whether this happened, in whole or in part: {name}"
    closed = await driver.waits.wait(
        line,
        key,
        "in_doubt",
        asked,
        purpose=f"in_doubt:{attempt}",
        options=("repeat", "stop", "done"),
        details=details,
        whole=whole,
    )
    return _decided(driver, key, closed, effect)


def reason(fate: Fate) -> str:
    """Why an effect is in doubt, according to the fate of the driver that began it."""
    match fate.state:
        case "ended":
            return "the process exited while it was under way"
        case "silent":
            return (
                f"contact with process {fate.pid} on {fate.machine or 'another machine'} was lost while it was under way"
                " (it may still be running there)"
            )
        case _:
            return "its outcome was not recorded"


def _given(failed: Failed | None) -> dict[str, str]:
    """The output of an effect up to the point where it ended without an outcome."""
    streams = {"stdout": "its output until then", "stderr": "its error output until then"}
    found = {} if failed is None else {name: str(failed.details.get(at) or "") for at, name in streams.items()}
    return {name: text for name, text in found.items() if text}


def _decided(driver: Driver, key: Key, closed: WaitClosed, effect: Effect) -> AnyOutcome | None:
    doubt = {"in_doubt": True}
    if closed.how != "answered":
        return Failed("cancelled", "Cancelled.", details=doubt)
    match closed.answer.get("decision"):
        case "repeat":
            return None
        case "done":
            return outcome_from(closed.answer["outcome"])
        case _:
            opened = driver.waits.opened(key, closed.wait)
            words = f"It is not known whether '{effect.fingerprint}' happened." if opened is None else opened.prompt
            return Failed("in_doubt", f"Stopped by a decision. {words}", details={**doubt, "step": key[1]})


async def cancelled(driver: Driver, key: Key, effect: Effect, attempt: int) -> AnyOutcome:
    """The outcome of an effect that a lost process began, when its run is cancelled: the user's decision, if there is
    one. If not, the doubt remains and the effect is not continued.
    """
    await driver.engine.clear()
    if effect.repeatable:
        return CANCELLED
    return said(driver, key, effect, attempt) or CUT_OFF


def said(driver: Driver, key: Key, effect: Effect, attempt: int) -> AnyOutcome | None:
    """The user's decision about an effect in doubt; None if there is none yet, or if the effect is to be repeated."""
    closed = driver.waits.decided(key, f"in_doubt:{attempt}")
    return None if closed is None else _decided(driver, key, closed, effect)


UNBEGUN = frozenset(
    {
        *(
            "forbidden",
            "changed",
            "no_policy",
            "gate_error",
            "no_performer",
            "refused_address",
            "bad_request",
            "too_long",
        ),
        *("no_sandbox", "bad_command", "no_such_command", "outside_workspace", "no_such_tool", "bad_arguments"),
        *("secret", "secret_missing", "secret_too_short", "secret_unreadable", "secret_unknown", "secret_misplaced"),
        "insecure_secret",
    }
)
"""Failure codes of effects that did not begin."""
_INCONCLUSIVE = frozenset({"cancelled", "performer_error", "not_storable"})
"""Failure codes that do not show how far a performer got."""


def never_began(kind: str, failed: Failed) -> bool:
    """Whether the outcome of an effect of this kind shows that nothing was done."""
    sent = failed.details.get("sent")
    if failed.details.get("in_doubt"):
        return False
    if kind == SendHttp.__name__:
        return not sent and failed.code not in _INCONCLUSIVE
    return sent is False or (sent is None and failed.code in UNBEGUN)


async def send_late(driver: Driver, key: Key, outcome: AnyOutcome) -> None:
    """Sends the outcome of an effect to the run's current driver, which may consider the effect in doubt."""
    payload = {"key": list(key), "outcome": msgspec.to_builtins(outcome, enc_hook=str)}
    sending = asyncio.ensure_future(
        driver.engine.store.signal(Signal(driver.run_id, "late", payload, driver.engine.driver))
    )
    try:
        await asyncio.shield(sending)
    except asyncio.CancelledError:  # the drive is ended because it was fenced; no one else knows this outcome
        await sending
        raise


def words_of(effect: Effect) -> str:
    """Describes an effect in one line."""
    match effect:
        case RunCommand(argv=argv):
            return f"run {shlex.join(argv)}"
        case SendHttp(method=method, url=url):
            return f"send {method.upper()} {url}"
        case CallTool(tool=tool):
            return f"call {tool}"
        case CallNode(node=node, capability=capability, action=action):
            return f"{capability} {action} on {f'node {node}' if node else f'a node that offers {capability}'}"
        case PromptAgent(model=model):
            return f"a turn of {model}"
        case _:
            return effect.fingerprint


def parts_of(effect: Effect) -> dict[str, str]:
    """Everything that a repetition would do, by name, with handles in place of secrets."""
    match effect:
        case RunCommand(argv=argv, cwd=cwd, env=env, stdin=stdin, network=hosts, reads=reads, takes=takes):
            made = {"command": shlex.join(argv), "folder": cwd, "environment": _lines(env, "="), "stdin": stdin}
            made |= {"network": ", ".join(hosts), "may also read": ", ".join(reads)}
            made["files put there"] = _lines({path: str(file) for path, file in takes.items()}, ": ")
        case SendHttp(method=method, url=url, headers=headers, body=body, upload=upload, form=form):
            made = {"request": f"{method.upper()} {url}", "headers": _lines(headers, ": "), "body": body}
            if upload is not None or form:
                parts = {one.name: str(one.file or one.text) for one in form}
                made["body"] = _lines(parts, ": ") if upload is None else f"the file {upload}"
        case CallTool(tool=tool, arguments=arguments):
            made = {"tool": tool, "arguments": msgspec.json.encode(arguments, enc_hook=str).decode()}
        case CallNode(node=node, capability=capability, action=action, arguments=arguments):
            made = {"node": node, "action": f"{capability} {action}"}
            made["arguments"] = msgspec.json.encode(arguments, enc_hook=str).decode() if arguments else ""
        case PromptAgent(model=model, prompt=prompt):
            made = {"agent": model, "prompt": prompt}
            made["look at"] = "the files in the workspace, which the agent may have changed in part"
        case _:
            made = {"effect": msgspec.json.encode(effect, enc_hook=str).decode()}
    if isinstance(effect, Acting):
        uses = {use.at: use.form.replace("{}", f"[secret {use.handle}]") for use in effect.secrets}
        more = {name: text for name, text in effect.preview.items() if not name.startswith(OUTPUT_OF)}
        made |= {"secrets": _lines(uses, ": "), **more}
    return {name: text for name, text in made.items() if text}


def _lines(named: Mapping[str, str], between: str) -> str:
    return "\n".join(f"{name}{between}{value}" for name, value in named.items())
