"""Models: one port, the providers behind it, and the performer of `AskModel`. Importing this loads no HTTP library."""

from __future__ import annotations

from cuebook.performers.models.model import Chunk, Counts, Final, Model, ModelError, Request, TextDelta, Tokens, Turn
from cuebook.performers.models.performer import MAX_TOKENS, ModelPerformer
from cuebook.performers.models.prices import Facts, Price, Prices
from cuebook.performers.models.providers import DEFAULT, MissingKey, ProviderConfig, Providers, ProviderStatus
from cuebook.performers.models.retries import Retries, Timeouts

__all__ = [
    "DEFAULT",
    "MAX_TOKENS",
    "Chunk",
    "Counts",
    "Facts",
    "Final",
    "MissingKey",
    "Model",
    "ModelError",
    "ModelPerformer",
    "Price",
    "Prices",
    "ProviderConfig",
    "ProviderStatus",
    "Providers",
    "Request",
    "Retries",
    "TextDelta",
    "Timeouts",
    "Tokens",
    "Turn",
]
