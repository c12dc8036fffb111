# The names that `__getattr__` provides, for type checkers.
from cuebook.dialects.presentation.projection import ProgramRun, Said
from cuebook.surfaces.python.api import (
    Artifact,
    BadInput,
    CuebookError,
    Finding,
    Input,
    InvalidPlaybook,
    Playbook,
    Problem,
    Result,
    Step,
    Wait,
    afind,
    aload,
    arun,
    find,
    load,
    run,
    tool,
)
from cuebook.surfaces.python.programs import Programs
from cuebook.surfaces.python.runtime import Runtime

__version__: str

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
