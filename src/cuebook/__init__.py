"""Cuebook: one durable runtime for AI playbooks.

The Python API (`load`, `run`, `arun` and the rest) is imported when it is first used, because every invocation of the command
line imports this module.
"""

__version__ = "0.1.0"

__all__ = [
    "Artifact",
    "BadInput",
    "CuebookError",
    "Finding",
    "Input",
    "InvalidPlaybook",
    "Playbook",
    "Problem",
    "ProgramRun",
    "Programs",
    "Result",
    "Runtime",
    "Said",
    "Step",
    "Wait",
    "__version__",
    "afind",
    "aload",
    "arun",
    "find",
    "load",
    "run",
    "tool",
]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'cuebook' has no attribute '{name}'")
    import importlib

    places = {
        "ProgramRun": "cuebook.dialects.presentation.projection",
        "Programs": "cuebook.surfaces.python.programs",
        "Runtime": "cuebook.surfaces.python.runtime",
        "Said": "cuebook.dialects.presentation.projection",
    }
    place = places.get(name, "cuebook.surfaces.python.api")
    found: object = getattr(importlib.import_module(place), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
