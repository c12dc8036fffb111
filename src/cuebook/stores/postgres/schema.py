"""The tables of a Postgres store, as the list of migrations from an empty schema to the current version.

A released migration is never edited: a change is a new migration at the end. Text that users write is stored as bytes,
because Postgres does not accept the character NUL in `text`; ids are compared byte by byte.
"""

from __future__ import annotations

MIGRATIONS: tuple[str, ...] = (
    # 1: the beginning.
    """
    CREATE TABLE runs (
        key         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        id          text COLLATE "C" NOT NULL UNIQUE,
        tenant      text COLLATE "C" NOT NULL,
        owner       text COLLATE "C" NOT NULL,
        dialect     text NOT NULL,
        interpreter integer NOT NULL,
        playbook    text COLLATE "C" NOT NULL,
        name        text COLLATE "C" NOT NULL,
        created     double precision NOT NULL,
        updated     double precision NOT NULL,
        status      text NOT NULL,
        reason      text NOT NULL,
        step        text NOT NULL,
        model       text NOT NULL,
        totals      text NOT NULL,                 -- JSON
        error       text,                          -- JSON
        parent      text COLLATE "C" NOT NULL,     -- of a fork: the run whose records it inherits
        parent_seq  bigint NOT NULL,               -- of a fork: the number of its first own record
        epoch       integer NOT NULL,              -- raised by each claim; appends of an older one are refused
        driver      text COLLATE "C" NOT NULL,     -- the driver that holds it, or ''
        news        boolean NOT NULL DEFAULT false -- something arrived that its driver has not seen
    ) WITH (fillfactor = 70);
    CREATE INDEX runs_by_age ON runs (tenant, created DESC, key DESC);
    CREATE INDEX runs_to_do ON runs (key) WHERE news OR driver <> '' OR status IN ('pending', 'running');

    CREATE TABLE records (
        run    bigint NOT NULL,
        seq    bigint NOT NULL,
        tenant text COLLATE "C" NOT NULL,
        path   text COLLATE "C" NOT NULL,          -- the branch it belongs to
        kind   text COLLATE "C" NOT NULL,
        head   bytea NOT NULL,                     -- JSON: number, time, epoch, place, kind
        body   bytea NOT NULL,                     -- JSON: the event; 'purged:' and its digest if it was purged
        chain  bytea NOT NULL,                     -- digest of the previous chain value, the head and the body's digest
        PRIMARY KEY (run, seq)
    );

    CREATE TABLE checkpoints (
        run    bigint NOT NULL,
        path   text COLLATE "C" NOT NULL,
        seq    bigint NOT NULL,
        tenant text COLLATE "C" NOT NULL,
        PRIMARY KEY (run, path, seq)
    );

    CREATE TABLE texts (
        digest text COLLATE "C" PRIMARY KEY,
        body   bytea NOT NULL                      -- UTF-8
    );

    CREATE TABLE playbooks (
        digest text COLLATE "C" PRIMARY KEY,
        body   bytea NOT NULL                      -- UTF-8
    );

    CREATE TABLE steps (
        run    bigint NOT NULL,
        path   text COLLATE "C" NOT NULL,
        label  text COLLATE "C" NOT NULL,
        visit  bigint NOT NULL,
        seq    bigint NOT NULL,                    -- where the visit begins; 0 for a pending step
        status text NOT NULL,
        tenant text COLLATE "C" NOT NULL,
        body   text NOT NULL,                      -- JSON
        PRIMARY KEY (run, path, label, visit)
    ) WITH (fillfactor = 70);

    CREATE TABLE waits (
        id      text COLLATE "C" PRIMARY KEY,
        run     bigint NOT NULL,
        tenant  text COLLATE "C" NOT NULL,
        owner   text COLLATE "C" NOT NULL,
        state   text NOT NULL,                     -- open, then answered, expired or cancelled, then closed
        expires double precision,
        opened  double precision NOT NULL,
        kind    text NOT NULL,
        body    text NOT NULL,                     -- JSON
        answer  text NOT NULL DEFAULT '{}',        -- JSON
        decider text NOT NULL DEFAULT ''
    );
    CREATE INDEX waits_by_run ON waits (run, state);
    CREATE INDEX waits_open ON waits (tenant, opened, id) WHERE state = 'open';
    CREATE INDEX waits_by_expiry ON waits (expires) WHERE state = 'open' AND expires IS NOT NULL;

    CREATE TABLE signals (
        id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        run     bigint NOT NULL,
        tenant  text COLLATE "C" NOT NULL,
        kind    text NOT NULL,
        payload text NOT NULL,                     -- JSON
        sender  text NOT NULL,
        taken   boolean NOT NULL DEFAULT false
    );
    CREATE INDEX signals_waiting ON signals (run) WHERE NOT taken;

    CREATE TABLE drivers (
        id    text COLLATE "C" PRIMARY KEY,
        host  text NOT NULL,                       -- machine, boot and process namespace
        pid   integer NOT NULL,
        born  text NOT NULL,                       -- distinguishes a process from a later one with the same number
        lease timestamptz NOT NULL                 -- by this database's clock
    );

    -- Decisions of operators that concern all runs of a tenant.
    CREATE TABLE kept (
        tenant text COLLATE "C" NOT NULL,
        kind   text COLLATE "C" NOT NULL,          -- user, secret, override, trust
        name   text COLLATE "C" NOT NULL,
        body   text NOT NULL,                      -- JSON; of a secret its handle, never the value
        PRIMARY KEY (tenant, kind, name)
    );
    """,
)
