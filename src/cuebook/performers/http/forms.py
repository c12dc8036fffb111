"""Bodies that are sent from files: one file, or a form of the type `multipart/form-data` with files among its parts."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from hashlib import sha256

from cuebook.kernel.effects import FormPart, SendHttp
from cuebook.kernel.files import FileRef, Pieces, RunFiles

_UNSAFE = re.compile(r"[\r\n\"]")


def is_streamed(effect: SendHttp) -> bool:
    return effect.upload is not None or bool(effect.form)


def content_type(effect: SendHttp) -> str:
    return f"multipart/form-data; boundary={_boundary(effect)}" if effect.form else "application/octet-stream"


def stream(effect: SendHttp, files: RunFiles) -> tuple[Pieces, int]:
    """The body of a request, and its length."""
    if effect.upload is not None:
        file = effect.upload
        return (lambda: files.read(file.digest)), file.size
    parts: list[bytes | FileRef] = []
    boundary = _boundary(effect).encode()
    for part in effect.form:
        parts.append(b"--" + boundary + b"\r\n" + _head(part))
        parts.append(part.text.encode() if part.file is None else part.file)
        parts.append(b"\r\n")
    parts.append(b"--" + boundary + b"--\r\n")

    async def pieces() -> AsyncIterator[bytes]:
        for one in parts:
            if isinstance(one, bytes):
                yield one
            else:
                async for piece in files.read(one.digest):
                    yield piece

    return pieces, sum(one.size if isinstance(one, FileRef) else len(one) for one in parts)


def shown(effect: SendHttp) -> str:
    """The body in a preview."""
    if effect.upload is not None:
        return f"the file {effect.upload}"
    return "\n".join(f"{one.name}: {one.text if one.file is None else f'the file {one.file}'}" for one in effect.form)


def _boundary(effect: SendHttp) -> str:
    """A separator that depends on the parts alone, so that every attempt sends the same. No one can write a text that
    contains it, because the text decides it.
    """
    told = "\0".join(f"{one.name}\0{one.text}\0{one.file.digest if one.file else ''}" for one in effect.form)
    return f"cuebook-{sha256(told.encode('utf-8', 'replace')).hexdigest()[:40]}"


def _head(part: FormPart) -> bytes:
    lines = f'Content-Disposition: form-data; name="{_quoted(part.name)}"'
    if part.file is not None:
        lines += f'; filename="{_quoted(part.filename or part.file.filename or part.file.name)}"'
        lines += f"\r\nContent-Type: {_UNSAFE.sub('', part.type) or 'application/octet-stream'}"
    return f"{lines}\r\n\r\n".encode()


def _quoted(text: str) -> str:
    """As browsers quote names in forms."""
    return _UNSAFE.sub(lambda found: f"%{ord(found[0]):02X}", text)
