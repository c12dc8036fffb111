"""The kernel: effects, events, journal, engine, run.

It knows no dialect, no surface and no I/O library. Read it in this order:

- `effects`, `outcomes`, `context`, `events`: what programs yield and receive;
- `journal`, `run`, `tally`: what is kept of it, and the rows folded from it;
- `ports`: what is needed from outside;
- `replay`, `rehearsal`, `retry`: what a journal means to a program that runs again;
- `scribe`, `waits`, `budgets`, `acts`, `driver`, `engine`: how a run is driven;
- `conversation`: the sub-program that dialects share.
"""
