"""A row of a skill's table as a tool: described and sent like every other request, with its answer trimmed.

It does not know any service. URLs and secrets are passed in; the gate decides whether it may be used.
"""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from cuebook.formats.addresses import parse_url
from cuebook.kernel.effects import SendHttp, ToolSpec
from cuebook.kernel.errors import CuebookError
from cuebook.kernel.outcomes import LACKS_SECRET, Failed, HttpResponse, ToolResult
from cuebook.kernel.ports import Action, Call, Description
from cuebook.kernel.run import Settings
from cuebook.performers.agent_tools.tool import Acts, within
from cuebook.performers.skills.model import HttpTool, Request
from cuebook.performers.skills.request_arguments import BadArguments, made, names_in, settings_in, takes_all
from cuebook.performers.skills.response import kept, said
from cuebook.performers.skills.settings import SkillSettings
from cuebook.performers.tools.toolbox import Ready, at_hand

ANSWER_LIMIT = 4 << 20
"""The maximum number of bytes to read from an answer; most of them are not kept."""
PAUSES = (0.5, 2.0)
"""Seconds before each retry after a temporary failure."""
_LONGEST_PAUSE = 10.0


def fitted(tool: HttpTool, settings: SkillSettings) -> HttpTool | None:
    """The tool with the requests that its settings allow, and only the arguments that these use, because others would
    be dropped silently. None if no request is possible.
    """
    requests = tuple(one for one in tool.requests if all(map(settings.has, settings_in(one))))
    if not requests:
        return None
    further = [one.request for one in (tool.instead, tool.afterwards) if one is not None]
    used = {name for one in (*requests, *further) for name in (*names_in(one), *one.wants)}
    if any(takes_all(one.body) for one in requests):
        return msgspec.structs.replace(tool, requests=requests)
    properties = {name: one for name, one in tool.parameters["properties"].items() if name in used}
    return msgspec.structs.replace(tool, requests=requests, parameters={**tool.parameters, "properties": properties})


class SkillTool:
    """A tool of a configured skill."""

    takes_secrets = False

    def __init__(
        self,
        service: str,
        tool: HttpTool,
        settings: SkillSettings,
        http: Acts,
        reveal: Callable[[str], str],
        pauses: Sequence[float] = PAUSES,
        ready: Ready = at_hand,
    ) -> None:
        """`service` is its name in messages; `reveal` returns the value of a secret by its handle, at once if it is `ready`. The
        tool has been `fitted` to the settings.
        """
        self.spec = ToolSpec(tool.name, tool.description, tool.parameters)
        self.reads_only = tool.reads_only
        self.idempotent = tool.reads_only or tool.idempotent
        properties: dict[str, dict[str, Any]] = tool.parameters["properties"]
        self._usual = {name: one["default"] for name, one in properties.items() if "default" in one}
        self._service = service
        self._tool = tool
        self._settings = settings
        self._http = http
        self._reveal = reveal
        self._pauses = pauses
        self._ready = ready

    async def describe(self, arguments: dict[str, Any], settings: Settings) -> Description | Failed:
        arguments = {**self._usual, **arguments}
        request = self._chosen(arguments)
        if request.base in self._settings.handles:
            try:
                await self._ready(self._settings.handles[request.base])
            except CuebookError as problem:
                return msgspec.structs.replace(Failed.of(problem), details={LACKS_SECRET: True})
        described = await self._http.describe(self._effect(request, arguments), settings)
        if isinstance(described, Failed):
            return described
        actions, preview = list(described.actions), dict(described.preview)
        address = self._settings.handles.get(request.base)
        place = described.actions[0].target
        if address:
            # Anyone who has such a URL can use it, so only its host is shown.
            place = f"{request.method} {parse_url(self._address(request)).origin}"
            preview["request"] = f"{place}/[secret {address}]"
        for what, more in self._followed_by(arguments).items():
            inner = await self._http.describe(more, settings)
            if isinstance(inner, Failed):
                return inner
            actions += inner.actions
            preview[what] = f"{inner.summary}\n{more.body}".strip()
        actions += [Action("secret", handle, reads_only=True) for handle in self._handles(request)]
        return msgspec.structs.replace(
            described, actions=tuple(actions), summary=f"{self.spec.name}: {place}", preview=preview
        )

    async def call(self, arguments: dict[str, Any], call: Call) -> ToolResult | Failed:
        arguments = {**self._usual, **arguments}
        request = self._chosen(arguments)
        response = await self._sent(request, arguments, call)
        if isinstance(response, Failed):
            return response
        if not 200 <= response.status < 300:
            return await self._refused(response, arguments, call)
        value = self._kept(request, response)
        if isinstance(value, Failed):
            return value
        if self._afterwards_applies(arguments):
            value = await self._afterwards(value, arguments, call)
        return ToolResult({"status": response.status} if value in ("", None) else value)

    # --- requests ---

    def _chosen(self, arguments: Mapping[str, Any]) -> Request:
        """The first request whose arguments are given."""
        possible = self._tool.requests
        for request in possible:
            if all(name in arguments for name in request.wants):
                return request
        wanted = " or ".join(sorted({name for one in possible for name in one.wants}))
        raise BadArguments(f"The tool '{self.spec.name}' needs {wanted} here.", fix=f"Pass {wanted}.")

    def _effect(
        self, request: Request, arguments: Mapping[str, Any], more: Mapping[str, Any] | None = None
    ) -> SendHttp:
        values = {**(more or {}), **arguments, **self._settings.values}
        if request.base in self._settings.handles:
            values[request.base] = self._address(request)
        effect = made(request, values, arguments, self._settings.handles)
        return msgspec.structs.replace(effect, reads_only=self.reads_only, idempotent=self.idempotent)

    def _address(self, request: Request) -> str:
        """Returns a URL that is itself a secret."""
        return self._reveal(self._settings.handles[request.base])

    def _handles(self, request: Request) -> list[str]:
        found = [self._settings.handles[one.setting] for one in request.auth]
        return [self._settings.handles[request.base], *found] if request.base in self._settings.handles else found

    def _secrets(self, request: Request) -> dict[str, str]:
        values: dict[str, str] = {}
        for one in request.auth:
            value = self._reveal(self._settings.handles[one.setting])
            if one.user:
                value = b64encode(f"{self._settings.values[one.user]}:{value}".encode()).decode()
            values[f"headers.{one.header}"] = one.form.replace("{}", value)
        return values

    async def _sent(self, request: Request, arguments: Mapping[str, Any], call: Call) -> HttpResponse | Failed:
        """Like `_send`, but retries an idempotent request after a temporary failure."""
        response = await self._send(request, arguments, call)
        for pause in self._pauses:
            if isinstance(response, Failed) or not self._passing(response):
                break
            wait = _asked_to_wait(response) or pause
            if wait > _LONGEST_PAUSE:
                break
            await asyncio.sleep(wait)
            response = await self._send(request, arguments, call)
        return response

    def _passing(self, response: HttpResponse) -> bool:
        return self.idempotent and (response.status == 429 or response.status >= 500)

    async def _send(
        self, request: Request, arguments: Mapping[str, Any], call: Call, more: Mapping[str, Any] | None = None
    ) -> HttpResponse | Failed:
        inner = within(call, output=ANSWER_LIMIT, secrets=lambda: self._secrets(request))
        response = await self._http.perform(self._effect(request, arguments, more), inner)
        if isinstance(response, Failed):
            return response
        if not isinstance(response, HttpResponse):
            raise TypeError(f"a request returned a {type(response).__name__}")
        masked: HttpResponse = call.masked(response)
        return masked

    # --- follow-up requests ---

    def _followed_by(self, arguments: Mapping[str, Any]) -> dict[str, SendHttp]:
        """Further requests that a call may lead to. A value that comes from an answer is shown by its name."""
        tool, more = self._tool, {}
        if tool.instead is not None:
            more["if it already exists"] = self._effect(tool.instead.request, arguments)
        if tool.afterwards is not None and self._afterwards_applies(arguments):
            unknown = {name: name.upper() for name in names_in(tool.afterwards.request)}
            more["afterwards"] = self._effect(tool.afterwards.request, arguments, unknown)
        return more

    def _afterwards_applies(self, arguments: Mapping[str, Any]) -> bool:
        more = self._tool.afterwards
        return more is not None and all(arguments.get(name) for name in more.request.wants)

    async def _refused(self, response: HttpResponse, arguments: dict[str, Any], call: Call) -> ToolResult | Failed:
        why, instead = said(str(response.body)), self._tool.instead
        if instead is not None and response.status == instead.status and instead.says in why.lower():
            there = await self._there_already(arguments, call)
            if there is not None:
                return ToolResult({**there, "reused": True})
        return Failed(
            "http_status",
            f"{self._service} answered with status {response.status}{f': {why}' if why else ''}.",
            fix=self._fix(response.status),
            retryable=self._passing(response),
            details={"status": response.status},
        )

    def _fix(self, status: int) -> str:
        if status < 500:
            return _FIXES.get(status, "Check the arguments.")
        if self.idempotent:
            return f"{self._service} is currently unavailable: try again later, or continue without it."
        return "It may have taken effect anyway: check before you repeat it."

    async def _there_already(self, arguments: dict[str, Any], call: Call) -> dict[str, Any] | None:
        instead = self._tool.instead
        assert instead is not None
        response = await self._send(instead.request, arguments, call)
        if isinstance(response, Failed) or response.status != 200:
            return None
        there = self._kept(instead.request, response)
        return there if isinstance(there, dict) else None

    def _kept(self, request: Request, response: HttpResponse) -> Any:
        return kept(request.answer, str(response.body), self._service, truncated=response.truncated)

    async def _afterwards(self, value: Any, arguments: dict[str, Any], call: Call) -> Any:
        more = self._tool.afterwards
        assert more is not None
        known = value if isinstance(value, dict) else {}
        if names_in(more.request) - settings_in(more.request) - set(arguments) - set(known):
            why = "the answer does not contain the values that it needs"
        else:
            response = await self._send(more.request, arguments, call, known)
            if isinstance(response, Failed):
                why = str(response)
            elif response.status < 300:
                return value
            else:
                why = f"status {response.status}: {said(str(response.body))}"
        warning = f"It was done, but {more.what} failed ({why})."
        call.warn("half_done", f"{self.spec.name}: {warning}")
        return {**known, "warning": warning}


_FIXES = {
    401: "Check the token: the service does not accept it.",
    403: "Check what the token may do; the service may also be refusing too many requests.",
    404: "Check the names, and that the token has access to them.",
    429: "Wait a moment, then request less at a time.",
}


def _asked_to_wait(response: HttpResponse) -> float:
    """The number of seconds that the service asks us to wait; 0 if it does not send a number."""
    given = next((value for name, value in response.headers.items() if name.lower() == "retry-after"), "")
    return float(given) if given.isdecimal() else 0.0
