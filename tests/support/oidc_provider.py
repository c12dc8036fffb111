"""An OpenID provider for tests: a real HTTP server with real keys, whose next answers a test can bend.

It signs in one person without asking, checks PKCE, the client's secret and that a code is used once, and publishes its keys.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
import time
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from joserfc import jwt
from joserfc.jwk import ECKey, RSAKey

from tests.support.web_service import Received, WebService, web_service

CLIENT, SECRET = "cuebook", "the-secret-of-the-client"
ASSISTANT = "assistant"
"""A public client, which gets access tokens for the resource that it names."""

Bend = Callable[[dict[str, Any]], dict[str, Any]]


class OidcProvider:
    """One provider. A test changes its attributes between requests."""

    def __init__(self) -> None:
        self.server: WebService
        self.keys: list[Any] = [RSAKey.generate_key(2048, {"use": "sig", "alg": "RS256"}, auto_kid=True)]
        """The keys it publishes. It signs with the last one."""
        self.person: dict[str, Any] = {"sub": "subject-1", "preferred_username": "ann", "groups": ["staff"]}
        """The claims about who signs in."""
        self.signed_in = True
        """Whether the person has a session here; otherwise a silent request is refused."""
        self.bend: Bend = lambda claims: claims
        """Changes the claims of the next ID tokens."""
        self.sign: Callable[[dict[str, Any]], str] = self._signed
        self.issuer = ""
        """What it calls itself, if not its address."""
        self.user_info: dict[str, Any] | None = None
        self.errors: list[str] = []
        """Errors of the token endpoint, so that a test can say why."""
        self._codes: dict[str, dict[str, str]] = {}
        self.down = False
        self.hold: threading.Event | None = None
        """If set, the token endpoint does not answer before this happens."""

    @property
    def address(self) -> str:
        return f"http://{self.server.place}"

    def rotate(self, *, keep: bool = False) -> None:
        """A new key, of another type, which replaces the old ones or is added."""
        made = ECKey.generate_key("P-256", {"use": "sig", "alg": "ES256"}, auto_kid=True)
        self.keys = [*self.keys, made] if keep else [made]

    def access_token(self, audience: str, **changes: Any) -> str:
        """An access token for a resource, as an assistant gets it."""
        now = int(time.time())
        claims = {"iss": self.address, "aud": audience, "exp": now + 300, "iat": now, "scope": "openid", **self.person}
        return self.sign({name: one for name, one in {**claims, **changes}.items() if one is not None})

    # --- requests ---

    def answer(self, asked: Received) -> tuple[int, Any]:
        url = urlsplit(asked.path)
        query = {name: one[0] for name, one in parse_qs(url.query).items()}
        if self.down:
            return 503, {"error": "down"}
        match url.path:
            case "/.well-known/openid-configuration":
                return 200, self._metadata()
            case "/keys":
                return 200, {"keys": [key.as_dict(private=False) for key in self.keys]}
            case "/authorize":
                return 200, {"location": self._authorize(query)}  # a browser would follow a redirect
            case "/token":
                return self._token(asked)
            case "/userinfo":
                return (200, self.user_info) if self.user_info is not None else (404, {})
        return 404, {"error": f"no {url.path} {query}"}

    def _metadata(self) -> dict[str, Any]:
        at = self.address
        found = {
            "issuer": self.issuer or at,
            "authorization_endpoint": f"{at}/authorize",
            "token_endpoint": f"{at}/token",
            "jwks_uri": f"{at}/keys",
            "end_session_endpoint": f"{at}/logout",
            "token_endpoint_auth_methods_supported": ["client_secret_basic"],
            "code_challenge_methods_supported": ["S256"],
            "response_types_supported": ["code"],
        }
        return {**found, **({"userinfo_endpoint": f"{at}/userinfo"} if self.user_info is not None else {})}

    def _authorize(self, asked: dict[str, str]) -> str:
        """Where the browser is sent back to."""
        assert (asked["response_type"], asked["client_id"] in (CLIENT, ASSISTANT)) == ("code", True)
        assert (asked["code_challenge_method"], "openid" in asked["scope"].split()) == ("S256", True)
        assert len(asked["state"]) > 20
        assert asked["client_id"] == ASSISTANT or len(asked["nonce"]) > 20
        back = {"state": asked["state"], "iss": self.address}
        if asked.get("prompt") == "none" and not self.signed_in:
            back["error"] = "login_required"
        else:
            code = secrets.token_urlsafe(16)
            self._codes[code] = asked
            back["code"] = code
        return f"{asked['redirect_uri']}?{urlencode(back)}"

    def _token(self, asked: Received) -> tuple[int, Any]:
        if self.hold is not None:
            self.hold.wait(30)
        form = {name: one[0] for name, one in parse_qs(asked.body.decode()).items()}
        given = b64decode(asked.headers.get("authorization", "").removeprefix("Basic ")).decode()
        public = form.get("client_id") == ASSISTANT and not given
        if not public and given != f"{CLIENT}:{SECRET}":
            return self._refuse(401, "invalid_client")
        begun = self._codes.pop(form.get("code", ""), None)  # it is used up, whatever follows
        if begun is None:
            return self._refuse(400, "invalid_grant")
        challenge = urlsafe_b64encode(hashlib.sha256(form["code_verifier"].encode()).digest()).decode().rstrip("=")
        if begun["code_challenge"] != challenge or begun["redirect_uri"] != form["redirect_uri"]:
            return self._refuse(400, "invalid_grant")
        if public:
            token = self.access_token(form["resource"], scope=begun["scope"])
            return 200, {"access_token": token, "token_type": "Bearer", "expires_in": 300, "scope": begun["scope"]}
        now = int(time.time())
        claims = {"iss": self.address, "aud": CLIENT, "exp": now + 300, "iat": now, "nonce": begun["nonce"]}
        token = self.sign(self.bend({**claims, **self.person}))
        return 200, {"access_token": "opaque", "token_type": "Bearer", "id_token": token, "expires_in": 300}

    def _refuse(self, status: int, error: str) -> tuple[int, Any]:
        self.errors.append(error)
        return status, {"error": error}

    def _signed(self, claims: dict[str, Any]) -> str:
        key = self.keys[-1]
        return jwt.encode({"alg": key.alg, "kid": key.kid}, claims, key, algorithms=[key.alg])


def unsigned(claims: dict[str, Any]) -> str:
    """A token that claims to need no signature."""
    import json

    def part(value: dict[str, Any]) -> str:
        return urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    return f"{part({'alg': 'none', 'typ': 'JWT'})}.{part(claims)}."


@contextmanager
def oidc_provider() -> Iterator[OidcProvider]:
    made = OidcProvider()
    with web_service(made.answer) as server:
        made.server = server
        yield made
