"""Identities that an OpenID provider vouches for: its metadata and keys, and the checks of its tokens."""

from cuebook.gate.identity.claims import Identity, IdentitySettings
from cuebook.gate.identity.provider import Provider, ProviderDown, TokenRefused

__all__ = ["Identity", "IdentitySettings", "Provider", "ProviderDown", "TokenRefused"]
