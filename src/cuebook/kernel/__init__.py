"""The kernel: effects, events, journal, engine, run.

It depends on no dialect, surface or I/O library. Read it in this order:

- `effects`, `outcomes`, `context`, `events`: the values that programs yield and receive;
- `journal`, `run`: the records and rows that are stored for each run;
- `ports`: the interfaces to the outside: store, performers, gate, sandbox;
- `fold/`: computations on a journal: the state of a run, replay, retry, verification;
- `engine/`: drives runs;
- `conversation`: a sub-program that dialects share.
"""
