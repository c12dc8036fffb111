"""Keeps secrets out of our own logs and the logs of libraries that performers use."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any
from weakref import WeakSet

from cuebook.gate.redaction import SecretRedactor


class RedactingFilter(logging.Filter):
    """Masks secrets in the message and the traceback of a log record."""

    def __init__(self, redactor: SecretRedactor) -> None:
        super().__init__()
        self._redactor = redactor

    def filter(self, record: logging.LogRecord) -> bool:
        if not self._redactor.known:
            return True
        try:
            message = record.getMessage()
        except Exception:  # the arguments do not match the message; logging reports that with the masked values
            record.msg, record.args = self._redactor.text(str(record.msg)), self._redactor.value(record.args)
            return True
        masked = self._redactor.text(message)
        if masked != message:
            record.msg, record.args = masked, None
        if record.exc_info and not record.exc_text:
            trace = logging.Formatter().formatException(record.exc_info)
            if (masked := self._redactor.text(trace)) != trace:
                record.exc_info, record.exc_text = None, masked
        record.exc_text = record.exc_text and self._redactor.text(record.exc_text)
        record.stack_info = record.stack_info and self._redactor.text(record.stack_info)
        return True


_guarding: WeakSet[SecretRedactor] = WeakSet()


def guard_logs(redactor: SecretRedactor) -> Callable[[], None]:
    """Masks secrets in every log record of this process while the redactor exists. Returns a function that stops it.

    A filter on a logger does not see the records of its child loggers or of the libraries that performers use, so
    records are masked when they are created.
    """
    _guarding.add(redactor)
    made_by = logging.getLogRecordFactory()
    if not isinstance(made_by, _MaskedRecords):
        logging.setLogRecordFactory(_MaskedRecords(made_by))
    return lambda: _guarding.discard(redactor)


class _MaskedRecords:
    def __init__(self, made_by: Callable[..., logging.LogRecord]) -> None:
        self._made_by = made_by

    def __call__(self, *args: Any, **kwargs: Any) -> logging.LogRecord:
        record = self._made_by(*args, **kwargs)
        for redactor in list(_guarding):
            RedactingFilter(redactor).filter(record)
        return record
