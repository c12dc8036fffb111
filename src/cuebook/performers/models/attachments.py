"""Which models take images and documents, and what a model that does not gets instead.

A model that the configuration says nothing about is recognised by its name.
"""

from __future__ import annotations

import re

import msgspec

from cuebook.kernel.context import Context
from cuebook.kernel.effects import AskModel
from cuebook.performers.models.model import Request, Turn, TurnFile
from cuebook.performers.models.providers import Resolved

IMAGES, DOCUMENTS = "images", "pdf"
KINDS = (IMAGES, DOCUMENTS)
"""What the models of a provider can be configured to take."""

_TAKE_IMAGES = re.compile(
    r"claude-(?!2|instant)|gpt-(4o|4\.1|4-turbo|4-vision|5)|chatgpt-4o|(^|/)o1(?!-mini|-preview)|(^|/)o3(?!-mini)|(^|/)o4"
    r"|gemini|gemma-?[34]|grok-(4|.*vision)|llama-?4|llava|pixtral|vision|[-_]vl\b|qwen.*vl|mistral-(small|medium|large)-3"
)
_TAKE_DOCUMENTS = re.compile(r"claude-(?!2|instant|3-(opus|sonnet|haiku))")


def taken_by(resolved: Resolved) -> frozenset[str]:
    """The kinds of attachments that a model takes. Only Anthropic's protocol carries documents."""
    protocol = getattr(resolved.answers, "protocol", "")
    if not protocol:
        return frozenset()
    able = {IMAGES, DOCUMENTS} if protocol == "anthropic" else {IMAGES}
    if resolved.takes is not None:
        return frozenset(able.intersection(resolved.takes))
    name = resolved.model.lower()
    found = {IMAGES} if _TAKE_IMAGES.search(name) else set()
    return frozenset(able & (found | ({DOCUMENTS} if _TAKE_DOCUMENTS.search(name) else set())))


def fitted(request: Request, resolved: Resolved) -> Request:
    """The request without the attachments that the model does not take: their turns become errors that say so."""
    takes = taken_by(resolved)
    messages = tuple(_fitted(message, takes, resolved.name) for message in request.messages)
    return msgspec.structs.replace(request, messages=messages)


def left_out(effect: AskModel, resolved: Resolved) -> list[str]:
    """The names of the latest attachments that the model does not take."""
    names: list[str] = []
    node: Context | None = effect.context
    takes: frozenset[str] | None = None
    while node is not None and node.block is not None and node.block.role == "tool":
        for one in node.block.attachments:
            takes = taken_by(resolved) if takes is None else takes
            if _kind(one.media_type) not in takes:
                names.append(one.name)
        node = node.parent
    return names[::-1]


def _fitted(message: Turn, takes: frozenset[str], model: str) -> Turn:
    left = [file for file in message.files if _kind(file.media_type) not in takes]
    if not left:
        return message
    kept = tuple(file for file in message.files if file not in left)
    words = " ".join(_refusal(file, model) for file in left)
    return msgspec.structs.replace(message, text=words, is_error=not kept, files=kept)


def _kind(media_type: str) -> str:
    return IMAGES if media_type.startswith("image/") else DOCUMENTS


def _refusal(file: TurnFile, model: str) -> str:
    name = file.name or "The file"
    if _kind(file.media_type) == IMAGES:
        return f"{name} is an image ({file.media_type}), and the model {model} does not take images. Work without it."
    return (
        f"{name} is a PDF document, which cannot be sent to the model {model}. Extract its text with a command, such as"
        f" `pdftotext {name} -`, or work without it."
    )
