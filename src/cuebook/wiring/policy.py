"""The policy in force: the trusted policy files of the user and the project, and a built-in layer."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cuebook.config import Config, config_folder
from cuebook.gate.policy import (
    Layer,
    Policy,
    bundle_from,
    content_digest,
    find,
    load_layer,
    names_host,
    trust_subject,
)
from cuebook.kernel.ports import Store
from cuebook.wiring.workspace import Workspace

TENANT = "local"


class PolicyFiles:
    """Reads the policy files, and reloads them whenever one of them or its trust changes."""

    def __init__(self, config: Config, environ: Mapping[str, str], workspace: Workspace) -> None:
        self._config = config
        self._environ = environ
        self._workspace = workspace
        self.store: Store | None = None
        """The store that records which files are trusted. Set it before the first use of `today`."""
        self._policy = Policy(())
        self._seen: tuple[Any, ...] | None = None
        """The state of the files when they were read, and whether they were trusted."""

    async def today(self, tenant: str) -> Policy:
        """The current policy, read from its files."""
        assert self.store is not None
        trusts = await self.store.kept(tenant, "trust")

        def trusted(path: Path, digest: str) -> bool:
            return trusts.get(trust_subject(path), {}).get("digest") == digest

        found = find(config_folder(self._environ), self._config.folder)
        own = self._own_layer()
        seen = tuple(_state_of(one.path, trusts) for one in found)
        if seen != self._seen:
            self._policy = Policy((*own, *(load_layer(one, trusted) for one in found)))
            if self._config.get("sandbox") == "none":
                from cuebook.gate.policy.presets import unconfined

                self._policy = unconfined(self._policy)
            self._seen = seen
            await self._notice(tenant, [one.path for one in found])
        return self._policy

    async def _notice(self, tenant: str, paths: list[Path]) -> None:
        """Records in the audit of administrative acts that policy files changed since they were read last."""
        assert self.store is not None
        if not paths and not await self.store.tenants("policy_file"):
            return
        from cuebook.service.audit.admin import notice_policy_files  # most have no policy files

        digests = {str(path.resolve()): content_digest(path.read_bytes()) for path in paths}
        await notice_policy_files(self.store, tenant, digests)

    async def granted(self, subject: str, digest: str) -> bool:
        """Whether this subject, such as a tool server, is trusted in its current form."""
        assert self.store is not None
        return (await self.store.kept(TENANT, "trust")).get(subject, {}).get("digest") == digest

    def names_private(self, host: str, port: int) -> bool:
        """Whether a rule lists this host by its full name, which makes it accessible even if it is private."""
        return names_host([self._policy], host, port)

    def _own_layer(self) -> list[Layer]:
        """A policy layer that denies file tools access to a store inside the workspace."""
        if not self._workspace.holds_store:
            return []
        name = os.path.relpath(os.path.realpath(self._config.get("store")), self._workspace.path)
        denied = [f"{mode}:{name}{rest}" for mode in ("read", "write") for rest in ("", "-*", ".key")]
        return [Layer("user", "the store of runs", bundle_from({"files": {"deny": denied}}), may_allow=True)]


def _state_of(path: Path, trusts: Mapping[str, Mapping[str, Any]]) -> tuple[Any, ...]:
    status = path.stat()
    trust = trusts.get(trust_subject(path), {}).get("digest")
    return path, status.st_ino, status.st_mtime_ns, status.st_ctime_ns, status.st_size, trust
