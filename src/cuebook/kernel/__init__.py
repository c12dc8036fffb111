"""The kernel: effects, events, journal, engine, run.

It depends on no dialect, surface or I/O library. Read it in this order:

- `effects`, `outcomes`, `context`, `events`: what programs yield and receive;
- `journal`, `run`: what a store keeps of a run;
- `ports`: what the engine needs from outside: store, performers, gate, sandbox;
- `fold/`: what is computed from a journal: the state of a run, replay, retry, verification;
- `engine/`: drives runs;
- `conversation`: the sub-program that dialects share.
"""
