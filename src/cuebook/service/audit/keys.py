"""Ed25519 keys that sign exports: making, reading and naming them. Pure, except for `cryptography`, which is loaded on use."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable
from hashlib import sha256
from typing import TYPE_CHECKING

from cuebook.kernel.errors import BadInput

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

KEYGEN = "`cuebook evidence keygen FILE` makes a key."
_BLOCK = re.compile(rb"-----BEGIN ([A-Z0-9 ]+)-----.*?-----END \1-----", re.DOTALL)


class SigningKey:
    """A private key."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key

    @classmethod
    def new(cls) -> SigningKey:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def read(cls, text: str, where: str) -> SigningKey:
        """Reads PKCS #8 as PEM, or the same as one line of base64. Raises `BadInput`, which does not repeat it."""
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import load_der_private_key, load_pem_private_key

        try:
            data = text.strip().encode()
            is_pem = data.startswith(b"-----")
            key = load_pem_private_key(data, None) if is_pem else load_der_private_key(_from_base64(text.strip()), None)
        except (ValueError, TypeError, UnsupportedAlgorithm):  # its text may quote the key
            key = None
        if not isinstance(key, Ed25519PrivateKey):
            raise BadInput(f"{where} is not an Ed25519 private key without a passphrase.", fix=KEYGEN)
        return cls(key)

    @property
    def public(self) -> PublicKey:
        return PublicKey(self._key.public_key())

    def sign(self, data: bytes) -> bytes:
        return self._key.sign(data)

    def pem(self) -> bytes:
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

        return self._key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


class PublicKey:
    """A public key, which checks signatures."""

    def __init__(self, key: Ed25519PublicKey) -> None:
        self._key = key

    @property
    def id(self) -> str:
        """The first half of the SHA-256 of the key's 32 bytes, in hexadecimal."""
        from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

        return sha256(self._key.public_bytes(Encoding.Raw, PublicFormat.Raw)).hexdigest()[:32]

    def verifies(self, signature: bytes, data: bytes) -> bool:
        from cryptography.exceptions import InvalidSignature

        try:
            self._key.verify(signature, data)
        except InvalidSignature:
            return False
        return True

    def pem(self) -> bytes:
        from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

        return self._key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def read_public_keys(files: Iterable[tuple[str, bytes]]) -> list[PublicKey]:
    """The public keys in these files, of which each may have several."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    found: list[PublicKey] = []
    for name, data in files:
        blocks = list(_BLOCK.finditer(data))
        if any(b"PRIVATE" in block[1] for block in blocks):
            raise BadInput(
                f"{name} has a private key.", fix="Verify with the public key, and keep the private one secret."
            )
        try:
            keys = [load_pem_public_key(block[0]) for block in blocks]
        except (ValueError, UnsupportedAlgorithm):
            keys = []
        if not keys or not all(isinstance(key, Ed25519PublicKey) for key in keys):
            raise BadInput(
                f"{name} is not a file of Ed25519 public keys.",
                fix="`cuebook evidence key` prints the public key where files are signed.",
            )
        found += [PublicKey(key) for key in keys if isinstance(key, Ed25519PublicKey)]
    return found


def _from_base64(text: str) -> bytes:
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("not base64") from None
