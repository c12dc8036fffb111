"""Where the page of a run's browser is, and how to get back to it. Pure."""

from __future__ import annotations

import msgspec

from cuebook.kernel.effects import Browse, Filled, SecretUse
from cuebook.kernel.outcomes import Page


class Trail(msgspec.Struct, frozen=True, omit_defaults=True):
    """The page that was opened last, and what was done there since."""

    page: str = ""
    fills: tuple[Filled, ...] = ()
    clicks: int = 0

    @classmethod
    def before(cls, effect: Browse) -> Trail:
        return cls(effect.page, effect.fills, effect.clicks)

    @property
    def secrets(self) -> tuple[SecretUse, ...]:
        """The secrets that getting back to it needs."""
        return tuple(
            SecretUse(f"fills.{number}", one.secret, one.form) for number, one in enumerate(self.fills) if one.secret
        )

    def after(self, effect: Browse, outcome: Page) -> Trail:
        if effect.action == "navigate" or outcome.opened or outcome.url != self.page:
            return Trail(outcome.url)
        if effect.action in ("fill", "select"):
            use = next((one for one in effect.secrets if one.at == "value"), SecretUse("value", ""))
            given = str(effect.arguments.get("value", ""))
            filled = Filled(effect.arguments["selector"], given, effect.action == "select", use.handle, use.form)
            return Trail(self.page, (*self.fills, filled), self.clicks)
        if is_click(effect):
            return Trail(self.page, self.fills, self.clicks + 1)
        return self


def is_click(effect: Browse) -> bool:
    """Whether a command clicks on something, which may change the world."""
    return effect.action == "click" or (effect.action == "download" and "selector" in effect.arguments)
