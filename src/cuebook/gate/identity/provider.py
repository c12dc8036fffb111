"""The OpenID provider that the operator configured: discovery, its keys, the exchange of codes, and the checks of tokens.

Signatures and claims are checked by `joserfc` and `authlib`, which are imported with the first sign-in. Nothing here repeats a
token, a code or the client's secret in an error.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Awaitable, Callable, Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Any
from urllib.parse import quote_plus, urlencode, urlsplit

import msgspec

from cuebook.gate.identity.claims import IdentitySettings, claim
from cuebook.gate.roles import NotAllowed
from cuebook.kernel.errors import CuebookError
from cuebook.system.network import is_loopback, system_tls

if TYPE_CHECKING:
    import httpx2

log = logging.getLogger("cuebook")

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519")
"""Signatures with a private key of the provider. `none`, and those with a shared secret (HS256), are refused."""
PATIENCE = 8.0
"""Seconds for one request to the provider, whatever it does."""
LEEWAY = 30
"""Seconds by which its clock may differ."""
FRESH = 3600.0
"""Seconds after which metadata and keys are fetched again."""
STALE = 24 * 3600.0
"""Seconds for which they are used while the provider cannot be reached."""
REFETCH_EVERY = 10.0
"""Seconds between two fetches because of a token with an unknown key: anyone can send such tokens."""
FAILED_FOR = 2.0
"""Seconds for which a provider that did not answer is not asked again, so that requests do not queue up behind it."""
DOWN_FOR = 60.0
_LARGEST = 1_000_000
_LONGEST_TOKEN = 20_000
LONGEST_SUBJECT = 255


class ProviderDown(CuebookError):
    """The identity provider does not answer, or not as it should."""

    code = "provider_down"


class TokenRefused(NotAllowed):
    """A token or an answer of the provider is not valid."""

    code = "token_refused"


class Login(msgspec.Struct, frozen=True):
    """What one attempt to sign in must come back with."""

    state: str
    nonce: str
    verifier: str

    @classmethod
    def new(cls) -> Login:
        return cls(secrets.token_urlsafe(32), secrets.token_urlsafe(32), secrets.token_urlsafe(48))


class _Fetched(msgspec.Struct):
    value: Any
    at: float


class Provider:
    """One provider. `reveal` returns the value of the client's secret when it is needed."""

    def __init__(
        self,
        settings: IdentitySettings,
        reveal: Callable[[str], Awaitable[str]],
        *,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.settings = settings
        self._reveal = reveal
        self._clock = clock
        self._monotonic = monotonic
        self._metadata: _Fetched | None = None
        self._keys: _Fetched | None = None
        self._failed: tuple[ProviderDown, float] | None = None
        self._forced = float("-inf")
        self._down_until = float("-inf")
        self._fetching = asyncio.Lock()
        self._client: httpx2.AsyncClient | None = None

    # --- signing in ---

    async def authorization_url(self, login: Login, redirect_uri: str, *, silent: bool = False) -> str:
        """Where a browser signs in. With `silent`, the provider asks nothing: it answers at once, or refuses."""
        metadata = await self.metadata()
        challenge = urlsafe_b64encode(sha256(login.verifier.encode()).digest()).decode().rstrip("=")
        query = {
            "response_type": "code",
            "client_id": self.settings.client_id,
            "redirect_uri": redirect_uri,
            "scope": self.settings.scopes,
            "state": login.state,
            "nonce": login.nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
            **({"prompt": "none"} if silent else {}),
        }
        place = metadata["authorization_endpoint"]
        return f"{place}{'&' if urlsplit(place).query else '?'}{urlencode(query)}"

    async def claims_of_code(self, code: str, login: Login, redirect_uri: str) -> dict[str, Any]:
        """Exchanges a code for the claims about who signed in. Raises `TokenRefused`."""
        metadata = await self.metadata()
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect_uri,
            "code_verifier": login.verifier,
        }
        basic = await self._authenticate(form, metadata)
        status, answer = await self._send("POST", metadata["token_endpoint"], form=form, basic=basic)
        if status != 200:
            reason = str(answer.get("error", f"status {status}"))[:100]
            if reason in ("invalid_client", "unauthorized_client") or status >= 500:
                raise ProviderDown(f"{self.settings.label} refused this server: {reason}.", fix=_CHECK_CLIENT)
            raise TokenRefused(f"{self.settings.label} did not accept this sign-in: {reason}.", fix=_AGAIN)
        raw, access = answer.get("id_token"), answer.get("access_token")
        if not isinstance(raw, str):
            raise ProviderDown(f"{self.settings.label} sent no ID token.", fix="The scope must include openid.")
        claims = await self._id_claims(raw, login.nonce, access if isinstance(access, str) else "")
        if claim(claims, self.settings.groups_claim) is None and isinstance(access, str):
            claims |= {**await self._user_info(access, str(claims["sub"]), metadata), **claims}
        return claims

    async def _authenticate(self, form: dict[str, str], metadata: Mapping[str, Any]) -> tuple[str, str] | None:
        """Adds the client's name and secret to a form, or returns them for the header."""
        secret = await self._secret() if self.settings.secret else ""
        methods = metadata.get("token_endpoint_auth_methods_supported") or ["client_secret_basic"]
        if secret and "client_secret_basic" in methods:
            return quote_plus(self.settings.client_id), quote_plus(secret)
        form["client_id"] = self.settings.client_id
        if secret:
            form["client_secret"] = secret
        return None

    async def _secret(self) -> str:
        """The client's secret. Why it is missing is for the operator of this server, not for visitors."""
        try:
            return await self._reveal(self.settings.secret)
        except CuebookError as error:
            log.warning("oidc.client_secret: %s", error)
            words = f"This server has no secret for {self.settings.label} now."
            raise ProviderDown(words, fix="Ask its operator to look at its log.") from None

    async def _id_claims(self, raw: str, nonce: str, access_token: str) -> dict[str, Any]:
        from authlib.oidc.core import CodeIDToken  # type: ignore[import-untyped]
        from joserfc.errors import JoseError

        token = await self._verified(raw)
        client = self.settings.client_id
        options = {
            "iss": {"essential": True, "value": self.settings.issuer},
            "aud": {"essential": True, "value": client},
            "sub": {"essential": True},
            "exp": {"essential": True},
        }
        params = {"nonce": nonce, "client_id": client, "access_token": access_token}
        try:
            CodeIDToken(token.claims, token.header, options, params).validate(int(self._clock()), LEEWAY)
            several = isinstance(token.claims["aud"], list) and len(token.claims["aud"]) > 1
            if several and token.claims.get("azp") != client:
                raise TokenRefused("The token is for several clients.", fix=_AGAIN)
        except (JoseError, ValueError, TypeError) as error:
            raise TokenRefused(f"The token of {self.settings.label} is not valid: {_why(error)}.", fix=_AGAIN) from None
        return self._checked_subject(dict(token.claims))

    async def _user_info(self, access_token: str, subject: str, metadata: Mapping[str, Any]) -> dict[str, Any]:
        """More about the person who signed in, for providers that put groups only there."""
        place = metadata.get("userinfo_endpoint")
        if not isinstance(place, str):
            return {}
        status, answer = await self._send("GET", place, bearer=access_token)
        return answer if status == 200 and answer.get("sub") == subject else {}

    # --- access tokens ---

    async def access_claims(self, raw: str, audience: str) -> dict[str, Any]:
        """The claims of an access token for this audience. Raises `TokenRefused`."""
        from joserfc.errors import JoseError
        from joserfc.jwt import JWTClaimsRegistry

        token = await self._verified(raw)
        check = JWTClaimsRegistry(
            now=int(self._clock()),
            leeway=LEEWAY,
            iss={"essential": True, "value": self.settings.issuer},
            aud={"essential": True, "value": audience},
            sub={"essential": True},
            exp={"essential": True},
        )
        try:
            check.validate(token.claims)
        except (JoseError, ValueError, TypeError) as error:
            raise TokenRefused(f"The access token is not valid: {_why(error)}.") from None
        if str(token.header.get("typ", "")).lower() not in ("at+jwt", "application/at+jwt") and _is_id_token(
            token.claims
        ):
            raise TokenRefused("This is not an access token.")
        return self._checked_subject(dict(token.claims))

    # --- signatures ---

    async def _verified(self, raw: str) -> Any:
        """The token, if one of the provider's keys signed it. An unknown key may be new, so the keys are fetched again."""
        from joserfc.errors import BadSignatureError, InvalidKeyIdError, JoseError

        if len(raw) > _LONGEST_TOKEN:
            raise TokenRefused("The token is too long.")
        for again in (False, True):
            keys = await self.keys(again=again)
            try:
                return _decoded(raw, keys)
            except (InvalidKeyIdError, BadSignatureError) as error:
                if again or not self._may_refetch():
                    raise TokenRefused(f"The signature is not valid: {_why(error)}.") from None
            except (JoseError, ValueError, TypeError) as error:
                raise TokenRefused(f"The token is not valid: {_why(error)}.") from None
        raise AssertionError

    def _checked_subject(self, claims: dict[str, Any]) -> dict[str, Any]:
        subject = claims.get("sub")
        if not isinstance(subject, str) or not 0 < len(subject) <= LONGEST_SUBJECT:
            raise TokenRefused("The subject of the token is not valid.")
        return claims

    def _may_refetch(self) -> bool:
        if self._monotonic() - self._forced < REFETCH_EVERY:
            return False
        self._forced = self._monotonic()
        return True

    # --- what the provider publishes ---

    async def metadata(self) -> dict[str, Any]:
        """Its discovery document. Raises `ProviderDown`."""
        async with self._fetching:
            self._metadata = await self._refreshed(self._metadata, self._discover)
        return dict(self._metadata.value)

    async def is_up(self) -> bool:
        """Whether the provider answers now. Looked at again after a minute if it does not."""
        if self._monotonic() < self._down_until:
            return False
        try:
            async with asyncio.timeout(PATIENCE / 4):
                self._metadata = _Fetched(await self._discover(), self._monotonic())
        except (ProviderDown, TimeoutError):
            self._down_until = self._monotonic() + DOWN_FOR
            return False
        return True

    async def keys(self, *, again: bool = False) -> list[Any]:
        """Its public keys, fetched when they are old, or `again` now."""
        place = (await self.metadata())["jwks_uri"]
        async with self._fetching:
            self._keys = await self._refreshed(self._keys, lambda: self._fetch_keys(place), again=again)
        return list(self._keys.value)

    async def _refreshed(self, known: _Fetched | None, fetch: Callable[[], Any], *, again: bool = False) -> _Fetched:
        now = self._monotonic()
        if known is not None and not again and now - known.at < FRESH:
            return known
        if self._failed is not None and now - self._failed[1] < FAILED_FOR:
            error = self._failed[0]
        else:
            try:
                return _Fetched(await fetch(), self._monotonic())
            except ProviderDown as failed:
                self._failed = (error := failed), self._monotonic()
                log.warning("%s", error.message)
        if known is None or now - known.at > STALE:
            raise error
        return known

    async def _discover(self) -> dict[str, Any]:
        issuer = self.settings.issuer
        status, found = await self._send("GET", f"{issuer.rstrip('/')}/.well-known/openid-configuration")
        if status != 200:
            raise ProviderDown(f"{self.settings.label} answered {status}.", fix=f"Check oidc.issuer: {issuer}.")
        if found.get("issuer") != issuer:
            named = str(found.get("issuer"))[:200]
            raise ProviderDown(
                f"{self.settings.label} calls itself {named}.",
                fix=f"Set oidc.issuer to exactly that, if it is yours, instead of {issuer}.",
            )
        for name in ("authorization_endpoint", "token_endpoint", "jwks_uri"):
            if not is_secure(str(found.get(name, ""))):
                raise ProviderDown(f"{self.settings.label} has no {name} with https.")
        return found

    async def _fetch_keys(self, place: str) -> list[Any]:
        from joserfc.errors import JoseError
        from joserfc.jwk import JWKRegistry

        status, found = await self._send("GET", place)
        given = found.get("keys")
        if status != 200 or not isinstance(given, list):
            raise ProviderDown(f"{self.settings.label} did not send its keys.")
        keys = []
        for one in given:
            if isinstance(one, dict) and one.get("kty") in ("RSA", "EC", "OKP") and one.get("use", "sig") == "sig":
                try:
                    keys.append(JWKRegistry.import_key(one))
                except (JoseError, ValueError, TypeError):  # of a kind that is not known here
                    continue
        if not keys:
            raise ProviderDown(f"{self.settings.label} has no keys for signatures.")
        return keys

    # --- requests ---

    async def _send(
        self,
        method: str,
        url: str,
        *,
        form: Mapping[str, str] | None = None,
        basic: tuple[str, str] | None = None,
        bearer: str = "",
    ) -> tuple[int, dict[str, Any]]:
        """The status of an answer, and its JSON object. Redirects are not followed."""
        import httpx2

        headers = {"Accept": "application/json"}
        if basic is not None:
            headers["Authorization"] = f"Basic {b64encode(':'.join(basic).encode()).decode()}"
        if bearer:
            headers["Authorization"] = f"Bearer {bearer}"
        if self._client is None:
            # A proxy of the environment is for other machines.
            local = _is_local(self.settings.issuer)
            self._client = httpx2.AsyncClient(
                follow_redirects=False, trust_env=not local, timeout=PATIENCE, verify=system_tls()
            )
        try:
            async with (
                asyncio.timeout(PATIENCE),
                self._client.stream(method, url, data=form, headers=headers) as response,
            ):
                body = b""
                async for piece in response.aiter_bytes():
                    body += piece
                    if len(body) > _LARGEST:
                        raise ProviderDown(f"{self.settings.label} sent too much.")
        except TimeoutError:
            raise ProviderDown(f"{self.settings.label} does not answer.", fix=_LATER) from None
        except httpx2.TimeoutException:
            raise ProviderDown(f"{self.settings.label} does not answer.", fix=_LATER) from None
        except (httpx2.HTTPError, OSError) as error:
            raise ProviderDown(
                f"{self.settings.label} cannot be reached: {type(error).__name__}.", fix=_LATER
            ) from None
        try:
            found = msgspec.json.decode(body)
        except msgspec.DecodeError:
            found = None
        return response.status_code, found if isinstance(found, dict) else {}

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()
            self._client = None


_AGAIN = "Sign in again."
_LATER = "Try again in a moment. Sessions that are open stay open."
_CHECK_CLIENT = "Check oidc.client_id, oidc.client_secret and the redirect address that the provider knows."


def _decoded(raw: str, keys: list[Any]) -> Any:
    """The token, verified with the key that it names, or if it names none, with any."""
    from joserfc import jws, jwt
    from joserfc.errors import BadSignatureError, InvalidKeyIdError, UnsupportedAlgorithmError

    header = jws.extract_compact(raw.encode()).headers()
    if header.get("alg") not in ALGORITHMS:
        raise UnsupportedAlgorithmError(f"algorithm {str(header.get('alg'))[:20]}")
    kid = header.get("kid")
    fitting = [key for key in keys if kid is None or key.kid == kid]
    if not fitting:
        raise InvalidKeyIdError("unknown key")
    for key in fitting:
        try:
            return jwt.decode(raw, key, algorithms=list(ALGORITHMS))
        except (BadSignatureError, ValueError):
            continue
    raise BadSignatureError("wrong signature")


def _is_id_token(claims: Mapping[str, Any]) -> bool:
    """Whether a token was made for a client that signs someone in, or to get new tokens, rather than for this server."""
    return any(name in claims for name in ("nonce", "at_hash", "c_hash")) or claims.get("typ") in ("ID", "Refresh")


def _why(error: Exception) -> str:
    """The kind of an error and the claim that it is about, without values of the token."""
    code = str(getattr(error, "error", "") or type(error).__name__)
    named = getattr(error, "claim", "")
    return f"{code.replace('_', ' ')}{f' {named}' if named else ''}"


def is_secure(url: str) -> bool:
    """Whether a URL uses https, or http on this machine."""
    parts = urlsplit(url)
    return bool(parts.hostname) and (parts.scheme == "https" or (parts.scheme == "http" and _is_local(url)))


def _is_local(url: str) -> bool:
    return is_loopback(urlsplit(url).hostname or "")
