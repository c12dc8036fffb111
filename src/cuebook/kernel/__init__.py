"""The kernel: effects, events, journal, engine, run.

It knows no dialect, no surface and no I/O library. Read it in this order:
`effects`, `context`, `events`, `journal`, `run`, `ports`, `replay`, `driver`, `engine`, `conversation`.
"""
