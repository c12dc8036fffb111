"""Tools from Cuebook's own test suite, shipped for yours: scripted and recorded models, and an in-memory store.

Nothing here uses the network unless you pass in a model that does.
"""

from __future__ import annotations

from cuebook.performers.models.model import Final, Model, ModelError, Request, TextDelta, Tokens, Turn
from cuebook.performers.models.performer import ModelPerformer
from cuebook.performers.models.providers import Providers
from cuebook.performers.models.recorded import NotRecorded, RecordedModel
from cuebook.performers.models.scripted import Line, Says, ScriptedModel, ScriptEnded
from cuebook.stores.memory import MemoryStore

__all__ = [
    "Final",
    "Line",
    "MemoryStore",
    "Model",
    "ModelError",
    "NotRecorded",
    "RecordedModel",
    "Request",
    "Says",
    "ScriptEnded",
    "ScriptedModel",
    "TextDelta",
    "Tokens",
    "Turn",
    "model_performer",
]


def model_performer(model: Model) -> ModelPerformer:
    """A performer of `AskModel` that uses this model for every model name, and retries without waiting."""

    async def at_once(seconds: float) -> None:
        return None

    return ModelPerformer(Providers.only(model), sleep=at_once, draw=lambda: 0.0)


def __getattr__(name: str) -> object:
    """`playbooks` is the former name of `runner`."""
    if name != "playbooks":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from cuebook.testing import runner

    return runner
