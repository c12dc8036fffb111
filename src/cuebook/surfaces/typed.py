"""A command as a person would type it, so that it reaches the same runs."""

from __future__ import annotations

import shlex

import click


def typed(words: str) -> str:
    """With the store that this call was given, if it was given one."""
    context = click.get_current_context(silent=True)
    store = context.params.get("store") if context is not None else None
    return f"cuebook {words} --store {shlex.quote(store)}" if store else f"cuebook {words}"
