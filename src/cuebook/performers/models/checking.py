"""Whether a reply follows the JSON Schema that was asked for. It knows values and schemas only."""

from __future__ import annotations

import importlib
import json
from typing import Any


def mismatch(text: str, schema: dict[str, Any]) -> str:
    """What is wrong with the reply, in one clause; empty where nothing is."""
    try:
        value = json.loads(text)
    except ValueError as error:
        return f"it is not JSON ({error})"
    jsonschema: Any = importlib.import_module("jsonschema")
    checker = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    try:
        checker.check_schema(schema)
        found = jsonschema.exceptions.best_match(checker(schema).iter_errors(value))
    except jsonschema.exceptions.SchemaError as error:
        return f"the schema itself is not valid ({error.message})"
    if found is None:
        return ""
    where = f" at {found.json_path}" if found.absolute_path else ""
    message = found.message if len(found.message) <= 300 else found.message[:300] + "…"
    return f"{message}{where}"
