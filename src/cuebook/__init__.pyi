# What `__getattr__` finds, for type checkers.
from cuebook.dialects.program.observe import Said
from cuebook.dialects.program.told import ProgramRun
from cuebook.surfaces.programs import Programs
from cuebook.surfaces.python import (
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
from cuebook.surfaces.runtimes import Runtime

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
