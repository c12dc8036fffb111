"""The performer of `CallNode`: says what a node would do, has it done, and asks for its outcome after a crash."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from cuebook.kernel.capabilities import any_node, node
from cuebook.kernel.context import Text
from cuebook.kernel.effects import CallNode
from cuebook.kernel.outcomes import UNANSWERED, AnyOutcome, CommandResult, Failed, ToolResult
from cuebook.kernel.ports import Action, Call, Description, Store
from cuebook.kernel.run import Settings
from cuebook.performers.nodes import protocol
from cuebook.performers.nodes.hub import Connection, Hub, Lost
from cuebook.performers.nodes.records import Paired, paired_nodes
from cuebook.performers.tools.arguments import check, places, with_handles, with_values

_TO_END = 10.0
"""Seconds that a node has, after the time of a request is over, to end it and to answer."""
_TO_COME_BACK = 10.0
"""Seconds to wait for a node that was connected a moment ago."""
_KEPT = (protocol.KEPT_DAYS - 1) * 86_400.0
"""Seconds for which the answer that a node does not know a request is believed."""


class NodePerformer:
    """Has actions performed by the nodes that are connected to this process."""

    def __init__(self, hub: Hub, store: Callable[[], Store] | None) -> None:
        """Without a store, it only describes what a run would do."""
        self._hub = hub
        self._open = store
        self._keys: dict[str, tuple[str, str]] = {}
        """The tenant and the key of the node that has the outcome of a request, until it is recorded."""
        self._sending: set[asyncio.Task[None]] = set()

    @property
    def _store(self) -> Store:
        assert self._open is not None
        return self._open()

    # --- before ---

    def needs(self, effect: CallNode, settings: Settings) -> tuple[str, ...]:
        return (node(effect.node) if effect.node else any_node(effect.capability),)

    def patience(self, effect: CallNode) -> float | None:
        return effect.timeout

    async def missing(self, effect: CallNode, run: str, seconds: float) -> Failed:
        known = await paired_nodes(self._store, (await self._store.run(run)).tenant)
        return absent(effect, known, f" within {seconds:g} s")

    async def describe(self, effect: CallNode, settings: Settings) -> Description | Failed:
        """The description without the node, for a preview of the run."""
        where = effect.node or f"the node that offers {effect.capability}"
        return self._description(effect, effect.node or "*", where, effect.reads_only)

    async def observe(self, effect: CallNode, settings: Settings, run: str) -> Description | Failed:
        if self._open is None:
            return await self.describe(effect, settings)
        found = await self._found(effect, run)
        if isinstance(found, Failed):
            return found
        connection, action = found
        where = f"{connection.name} ({connection.hello.host or 'unknown host'})"
        return self._description(effect, connection.name, where, effect.reads_only and action.reads_only, connection)

    def _description(
        self, effect: CallNode, name: str, where: str, reads_only: bool, connection: Connection | None = None
    ) -> Description | Failed:
        target = f"{effect.capability}.{effect.action}"
        uses = places(effect.secrets, target)
        if isinstance(uses, Failed):
            return uses
        shown = with_handles(effect.arguments, uses)
        if isinstance(shown, Failed):
            return shown
        preview = {"node": where, "action": f"{effect.capability} {effect.action}"}
        if shown:
            preview["arguments"] = msgspec.json.format(msgspec.json.encode(shown, enc_hook=str)).decode()
        bound = {} if connection is None else {"node": connection.name, "key": connection.key}
        action = Action("tool", f"node:{name}/{target}", reads_only=reads_only)
        return Description((action,), f"On node {where}: {target}", preview, bound)

    async def _found(
        self, effect: CallNode, run: str, patience: float = _TO_COME_BACK
    ) -> tuple[Connection, protocol.OfferedAction] | Failed:
        """The connection for an effect, and the action that it offers. It was there when the run came to this effect, so it is
        waited for if it was lost since.
        """
        tenant = (await self._store.run(run)).tenant
        known = await paired_nodes(self._store, tenant)
        name = effect.node
        if not name:
            fitting = sorted(one.name for one in known.values() if one.offers(effect.capability))
            if len(fitting) > 1:
                return _refused(
                    "node_ambiguous",
                    f"{len(fitting)} nodes offer '{effect.capability}': {', '.join(fitting)}.",
                    "Say which one with `node: NAME` next to the command.",
                )
            name = fitting[0] if fitting else ""
        paired = known.get(name)
        connection = None if paired is None else await self._hub.arrival(tenant, name, patience)
        if paired is None or connection is None or connection.key != paired.key:
            return absent(effect, known)
        offered = connection.offers(effect.capability)
        action = None if offered is None else offered.action(effect.action)
        if action is None:
            return _not_offered(effect, connection)
        uses = places(effect.secrets, effect.capability)
        if isinstance(uses, Failed):
            return uses
        if uses and not connection.private:
            return _refused(
                "insecure_secret",
                f"A secret would be sent to node '{name}' over a connection that is not encrypted.",
                "Connect the node with https, or remove the secret.",
            )
        shown = with_handles(effect.arguments, uses)
        if isinstance(shown, Failed):
            return shown
        wrong = check(f"{effect.capability} {effect.action}", action.schema, shown, uses)
        return (connection, action) if wrong is None else wrong

    # --- performing ---

    async def perform(self, effect: CallNode, call: Call) -> AnyOutcome:
        found = await self._found(effect, call.run, call.limits.seconds)
        if isinstance(found, Failed):
            return found
        connection, action = found
        arguments = _with_secrets(effect, call)
        if isinstance(arguments, Failed):
            return arguments
        request = _request(effect, call, arguments)
        if not protocol.fits(request):
            return _refused("too_long", f"The arguments are longer than {protocol.MAX_MESSAGE:,} bytes.")
        return await self._outcome(effect, call, connection, request, action, ask=False)

    async def recall(self, effect: CallNode, call: Call) -> AnyOutcome | None:
        found = await self._found(effect, call.run, call.limits.seconds)
        if isinstance(found, Failed):
            return _unanswered(found.message, fix=found.fix)
        connection, action = found
        request = _request(effect, call, {})
        outcome = await self._outcome(effect, call, connection, request, action, ask=True)
        if not isinstance(outcome, Failed) or outcome.code != _UNKNOWN:
            return outcome
        if time.time() - call.since > _KEPT:
            return _unanswered(f"Node '{connection.name}' keeps outcomes for {protocol.KEPT_DAYS} days.")
        return None

    async def _outcome(
        self,
        effect: CallNode,
        call: Call,
        connection: Connection,
        request: protocol.Call,
        action: protocol.OfferedAction,
        *,
        ask: bool,
    ) -> AnyOutcome:
        hub, began = self._hub, time.monotonic()
        at = (connection.tenant, connection.key)
        send = hub.ask if ask else hub.perform

        def shown(text: str) -> None:
            call.emit(text)

        waiting = asyncio.ensure_future(send(connection, request, shown))
        try:
            done, _ = await asyncio.wait([waiting], timeout=call.limits.seconds)
            late = not done
            if late:
                await hub.stop(*at, request.id)
                done, _ = await asyncio.wait([waiting], timeout=_TO_END)
            if not done:
                return _silent(connection.name, call.limits.seconds, hub.by_key(*at) is not None)
            outcome = waiting.result()
            if late and isinstance(outcome, protocol.Refused) and outcome.code == "cancelled":
                outcome = msgspec.structs.replace(
                    outcome,
                    code="timeout",
                    message=_late(connection.name, effect, call.given),
                    fix="Give the step more time: `timeout_ms`." if effect.timeout is not None else outcome.fix,
                )
        except asyncio.CancelledError:
            if not hub.closing:
                await hub.stop(*at, request.id)
            raise
        except Lost as lost:
            return _unanswered(str(lost), fix=lost.why.fix if lost.why is not None else "")
        finally:
            waiting.cancel()
        self._keys[request.id] = at
        return read(outcome, effect, connection.name, time.monotonic() - began)

    def recorded(self, run: str, intent: int) -> None:
        id = _id(run, intent)
        at = self._keys.pop(id, None)
        if at is not None:
            sending = asyncio.ensure_future(self._hub.forget(*at, id))
            self._sending.add(sending)
            sending.add_done_callback(self._sending.discard)


# --- requests -----------------------------------------------------------------------------------------


def _id(run: str, intent: int) -> str:
    return f"{run}.{intent}"


def _request(effect: CallNode, call: Call, arguments: dict[str, Any]) -> protocol.Call:
    return protocol.Call(
        id=_id(call.run, call.intent),
        capability=effect.capability,
        action=effect.action,
        arguments=arguments,
        seconds=call.limits.seconds,
        max_output=min(call.limits.output, protocol.MAX_OUTPUT),
        run=call.run,
        step=call.step,
    )


def _with_secrets(effect: CallNode, call: Call) -> dict[str, Any] | Failed:
    uses = places(effect.secrets, effect.capability)
    if isinstance(uses, Failed) or not uses:
        return uses if isinstance(uses, Failed) else dict(effect.arguments)
    values = call.secrets()
    return with_values(effect.arguments, {place: values[use.at] for place, use in uses.items()})


# --- outcomes -----------------------------------------------------------------------------------------

_UNKNOWN = "node_unknown"
_ENDED = ("timeout", "cancelled", "memory_limit", "cpu_limit", "process_limit")
"""The codes of a request that was ended before it was done, so that it may have happened in part."""


def read(outcome: protocol.Outcome | protocol.Known, effect: CallNode, name: str, seconds: float) -> AnyOutcome:
    """A node's answer as the outcome of the effect."""
    match outcome:
        case protocol.Known(state="unknown"):
            return _refused(_UNKNOWN, f"Node '{name}' did not receive the request.", "Retry the run.")
        case protocol.Known():
            return _unanswered(f"The process of node '{name}' ended while it was under way.")
        case protocol.Refused(began=False):
            return _refused(outcome.code, outcome.message, outcome.fix)
        case protocol.Refused():
            details: dict[str, Any] = {"sent": True, "stdout": outcome.text, "stderr": outcome.stderr}
            if outcome.code in _ENDED and not effect.reads_only:
                details[UNANSWERED] = True
            return Failed(outcome.code, outcome.message, outcome.fix, details=details)
        case protocol.Finished(exit_code=None):
            return _value(outcome)
        case _:
            return CommandResult(
                outcome.exit_code or 0,
                Text(outcome.text),
                Text(outcome.stderr),
                truncated=outcome.cut,
                seconds=seconds,
                sandbox=f"node {name}",
            )


def _value(outcome: protocol.Finished) -> ToolResult:
    value = outcome.text if outcome.value is None else outcome.value
    if not outcome.cut:
        return ToolResult(value)
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return ToolResult(text, kept=len(text))


def _refused(code: str, message: str, fix: str = "") -> Failed:
    """A failure of a request that did nothing."""
    return Failed(code, message, fix, details={"sent": False})


def _unanswered(message: str, fix: str = "") -> Failed:
    return Failed("node_lost", message, fix, details={"sent": True, UNANSWERED: True})


def _late(name: str, effect: CallNode, seconds: float) -> str:
    """With a time of its own, the step may have spent a part of it waiting for the node."""
    if effect.timeout is not None:
        return f"It was not over on node '{name}' when the {effect.timeout:g} s of the step (timeout_ms) had passed."
    return f"It took longer than {seconds:.3g} s on node '{name}'."


def _silent(name: str, seconds: float, connected: bool) -> Failed:
    why = "did not answer" if connected else "was cut off and did not come back"
    return Failed(
        "timeout",
        f"Node '{name}' {why} within {seconds:g} s.",
        "Look at the machine. A longer time for the step is `timeout_ms`.",
        details={"sent": True, UNANSWERED: True},
    )


def _not_offered(effect: CallNode, connection: Connection) -> Failed:
    offered = connection.offers(effect.capability)
    known = [one.name for one in (connection.hello.capabilities if offered is None else offered.actions)]
    what = f"'{effect.capability}'" if offered is None else f"the action '{effect.action}' of '{effect.capability}'"
    return _refused(
        "not_offered",
        f"Node '{connection.name}' does not offer {what}.",
        f"It offers {', '.join(known) or 'nothing'}. What it offers is set where `cuebook node` runs.",
    )


def absent(effect: CallNode, known: Mapping[str, Paired], within: str = "") -> Failed:
    """The failure of an effect whose node is not connected."""
    if effect.node and effect.node not in known:
        message = f"There is no paired node '{effect.node}'."
        return _refused("node_absent", message, f"Pair it: `cuebook nodes add {effect.node}`.")
    if not effect.node and not any(one.offers(effect.capability) for one in known.values()):
        message = f"No paired node offers '{effect.capability}'."
        return _refused("node_absent", message, "`cuebook nodes list` shows what each one offers.")
    name = effect.node or next(one.name for one in known.values() if one.offers(effect.capability))
    seen = known[name].presence.seen
    since = "has never connected" if not seen else f"was last connected at {_moment(seen)}"
    return _refused(
        "node_absent",
        f"Node '{name}' is not connected{within}; it {since}.",
        "Start it on its machine: `cuebook node --connect URL`.",
    )


def _moment(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(at))
