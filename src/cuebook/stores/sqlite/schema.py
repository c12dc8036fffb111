"""The tables of a SQLite store, as a list of migrations from an empty file to the current version.

A released migration is never edited. To change the schema, add a migration at the end.
"""

from __future__ import annotations

MIGRATIONS: tuple[str, ...] = (
    # 1: the beginning.
    """
    CREATE TABLE runs (
        key         INTEGER PRIMARY KEY,
        id          TEXT NOT NULL UNIQUE,
        tenant      TEXT NOT NULL,
        owner       TEXT NOT NULL,
        dialect     TEXT NOT NULL,
        interpreter INTEGER NOT NULL,
        playbook    TEXT NOT NULL,
        name        TEXT NOT NULL,
        created     REAL NOT NULL,
        updated     REAL NOT NULL,
        status      TEXT NOT NULL,
        reason      TEXT NOT NULL,
        step        TEXT NOT NULL,
        model       TEXT NOT NULL,
        totals      TEXT NOT NULL,               -- JSON
        error       TEXT,                        -- JSON
        parent      TEXT NOT NULL,               -- of a fork: whose records it inherits
        parent_seq  INTEGER NOT NULL,            -- of a fork: where its own records begin
        epoch       INTEGER NOT NULL,            -- raised by each claim; appends of an older one are refused
        driver      TEXT NOT NULL,               -- who holds it, or ''
        news        INTEGER NOT NULL DEFAULT 0   -- something came for it that its driver has not seen
    );
    CREATE INDEX runs_by_age ON runs (tenant, created DESC);
    CREATE INDEX runs_with_news ON runs (driver) WHERE news = 1;
    CREATE INDEX runs_to_do ON runs (key) WHERE news = 1 OR status IN ('pending', 'running');

    -- The journals of all runs in one sequence, so that what many runs append together lies together on disk.
    CREATE TABLE records (
        run    INTEGER NOT NULL,
        seq    INTEGER NOT NULL,
        path   TEXT NOT NULL,                    -- the branch it belongs to
        kind   TEXT NOT NULL,
        head   BLOB NOT NULL,                    -- JSON: number, time, epoch, place, kind
        body   BLOB NOT NULL,                    -- JSON: the event; 'purged:' and its digest where it was purged
        chain  BLOB NOT NULL                     -- of the previous chain value, the head and the body's digest
    );
    CREATE UNIQUE INDEX records_of_run ON records (run, seq);

    CREATE TABLE checkpoints (
        run  INTEGER NOT NULL,
        path TEXT NOT NULL,
        seq  INTEGER NOT NULL,
        PRIMARY KEY (run, path, seq)
    ) WITHOUT ROWID;

    CREATE TABLE texts (
        digest TEXT PRIMARY KEY,
        body   TEXT NOT NULL
    );

    CREATE TABLE playbooks (
        digest TEXT PRIMARY KEY,
        body   TEXT NOT NULL
    );

    CREATE TABLE steps (
        run    INTEGER NOT NULL,
        path   TEXT NOT NULL,
        label  TEXT NOT NULL,
        visit  INTEGER NOT NULL,
        seq    INTEGER NOT NULL,                 -- where the visit begins; 0 for one still to come
        status TEXT NOT NULL,
        body   TEXT NOT NULL,                    -- JSON
        PRIMARY KEY (run, path, label, visit)
    ) WITHOUT ROWID;

    CREATE TABLE waits (
        id      TEXT PRIMARY KEY,
        run     INTEGER NOT NULL,
        tenant  TEXT NOT NULL,
        owner   TEXT NOT NULL,
        state   TEXT NOT NULL,                   -- open, then answered, expired or cancelled, then closed
        expires REAL,
        opened  REAL NOT NULL,
        body    TEXT NOT NULL,                   -- JSON
        answer  TEXT NOT NULL DEFAULT '{}',      -- JSON
        decider TEXT NOT NULL DEFAULT ''
    ) WITHOUT ROWID;
    CREATE INDEX waits_by_run ON waits (run, state);
    CREATE INDEX waits_open ON waits (tenant, opened) WHERE state = 'open';
    CREATE INDEX waits_by_expiry ON waits (expires) WHERE state = 'open' AND expires IS NOT NULL;

    CREATE TABLE signals (
        id      INTEGER PRIMARY KEY AUTOINCREMENT,
        run     INTEGER NOT NULL,
        kind    TEXT NOT NULL,
        payload TEXT NOT NULL,                   -- JSON
        sender  TEXT NOT NULL,
        taken   INTEGER NOT NULL DEFAULT 0
    );
    CREATE INDEX signals_waiting ON signals (run) WHERE taken = 0;

    CREATE TABLE drivers (
        id    TEXT PRIMARY KEY,
        host  TEXT NOT NULL,                     -- machine, boot and process namespace
        pid   INTEGER NOT NULL,
        born  TEXT NOT NULL,                     -- tells a process from a later one with its number
        lease REAL NOT NULL
    ) WITHOUT ROWID;

    -- Names of secrets and where their values are found; never the values.
    CREATE TABLE secrets (
        tenant  TEXT NOT NULL,
        name    TEXT NOT NULL,
        owner   TEXT NOT NULL,
        handle  TEXT NOT NULL,
        created REAL NOT NULL,
        PRIMARY KEY (tenant, name)
    ) WITHOUT ROWID;
    """,
    # 2: decisions of operators that apply to all runs, in one table.
    """
    DROP TABLE secrets;

    CREATE TABLE kept (
        tenant TEXT NOT NULL,
        kind   TEXT NOT NULL,                    -- user, secret, override, trust
        name   TEXT NOT NULL,
        body   TEXT NOT NULL,                    -- JSON; of a secret where its value is found, never the value
        PRIMARY KEY (tenant, kind, name)
    ) WITHOUT ROWID;
    """,
    # 3: runs of killed drivers count as pending work regardless of their status; waits are indexed by kind.
    """
    DROP INDEX runs_to_do;
    CREATE INDEX runs_to_do ON runs (key) WHERE news = 1 OR driver <> '' OR status IN ('pending', 'running');

    ALTER TABLE waits ADD COLUMN kind TEXT NOT NULL DEFAULT '';
    UPDATE waits SET kind = json_extract(body, '$.kind');
    DROP INDEX waits_open;
    CREATE INDEX waits_open ON waits (tenant, opened, kind) WHERE state = 'open';
    """,
    # 4: what a run needs from the process that drives it.
    """
    ALTER TABLE runs ADD COLUMN workspace TEXT NOT NULL DEFAULT '';
    ALTER TABLE runs ADD COLUMN needs TEXT NOT NULL DEFAULT '[]';
    """,
    # 5: slots of limits that all processes share.
    """
    CREATE TABLE slots (
        id     INTEGER PRIMARY KEY,              -- random, so that it is never used again
        name   TEXT NOT NULL,                    -- the limit, as in provider:openai
        driver TEXT NOT NULL,
        until  REAL                              -- when it stops counting; NULL if it counts while its driver holds it
    );
    CREATE INDEX slots_by_name ON slots (name);
    """,
    # 6: child runs.
    """
    ALTER TABLE runs ADD COLUMN caller TEXT NOT NULL DEFAULT '';   -- the run that started it and drives it
    CREATE INDEX runs_by_caller ON runs (caller) WHERE caller <> '';
    """,
    # 7: files that steps produce.
    """
    CREATE TABLE files (
        tenant TEXT NOT NULL,
        digest TEXT NOT NULL,                    -- SHA-256 of the content
        size   INTEGER NOT NULL,
        PRIMARY KEY (tenant, digest)             -- once all its pieces are there
    ) WITHOUT ROWID;
    CREATE TABLE pieces (
        tenant TEXT NOT NULL,
        digest TEXT NOT NULL,                    -- of the whole file
        number INTEGER NOT NULL,
        body   BLOB NOT NULL
    );
    CREATE UNIQUE INDEX pieces_of_file ON pieces (tenant, digest, number);
    CREATE TABLE run_files (
        run    INTEGER NOT NULL,
        digest TEXT NOT NULL,
        PRIMARY KEY (run, digest)
    ) WITHOUT ROWID;
    CREATE INDEX runs_of_file ON run_files (digest);
    """,
    # 8: runs that wait for something which comes and goes, such as a node.
    """
    CREATE INDEX runs_in_need ON runs (key) WHERE needs <> '[]';
    """,
    # 9: retention: which runs refer to which texts, and which runs were removed.
    """
    CREATE TABLE run_texts (
        run    INTEGER NOT NULL,
        digest TEXT NOT NULL,
        PRIMARY KEY (run, digest)
    ) WITHOUT ROWID;
    CREATE INDEX runs_of_text ON run_texts (digest);
    CREATE INDEX runs_of_playbook ON runs (playbook);
    CREATE INDEX runs_by_parent ON runs (parent) WHERE parent <> '';
    CREATE INDEX signals_of_run ON signals (run);

    CREATE TABLE removals (
        run    TEXT PRIMARY KEY,
        key    INTEGER NOT NULL,                 -- of the run; it is never used again
        tenant TEXT NOT NULL,
        what   TEXT NOT NULL,                    -- deleted, purged
        at     REAL NOT NULL,
        first  INTEGER NOT NULL DEFAULT 0,       -- of a purge: the next record
        last   INTEGER NOT NULL DEFAULT 0,       -- of a purge: the last record
        done   INTEGER NOT NULL DEFAULT 0,       -- whether its space was freed
        body   TEXT NOT NULL                     -- JSON
    );
    CREATE INDEX removals_by_key ON removals (key);
    CREATE INDEX removals_to_do ON removals (at) WHERE done = 0;
    CREATE INDEX removals_by_age ON removals (tenant, at DESC);

    ALTER TABLE files ADD COLUMN touched REAL NOT NULL DEFAULT 0;   -- when it was last produced
    """,
    # 10: the second week: what has to be done later, what started a run, administrative acts, and what runs used.
    """
    ALTER TABLE runs ADD COLUMN trigger TEXT NOT NULL DEFAULT '';   -- schedule:NAME and others; '' for a person
    DROP INDEX runs_by_age;                                         -- the next one has everything that lists filter by
    CREATE INDEX runs_listed ON runs (tenant, created DESC, status, caller, name, owner, trigger);
    CREATE INDEX runs_unfinished ON runs (tenant, created DESC)
        WHERE status IN ('awaiting_approval', 'awaiting_input', 'paused', 'pending', 'running');

    CREATE TABLE jobs (
        tenant  TEXT NOT NULL,
        kind    TEXT NOT NULL,                   -- schedule, message
        name    TEXT NOT NULL,
        due     REAL,                            -- NULL if it waits for something other than the time
        body    TEXT NOT NULL,                   -- JSON
        version INTEGER NOT NULL,                -- raised by each change
        PRIMARY KEY (kind, tenant, name)
    ) WITHOUT ROWID;
    CREATE INDEX jobs_due ON jobs (kind, due) WHERE due IS NOT NULL;

    CREATE TABLE admin_acts (                    -- the audit of administrative acts
        tenant TEXT NOT NULL,
        seq    INTEGER NOT NULL,                 -- from 1, without gaps
        at     REAL NOT NULL,
        body   TEXT NOT NULL,                    -- JSON
        chain  TEXT NOT NULL,                    -- SHA-256 of the previous value and the body
        PRIMARY KEY (tenant, seq)
    ) WITHOUT ROWID;
    CREATE TABLE admin_heads (                   -- the last act of each tenant
        tenant TEXT PRIMARY KEY,
        seq    INTEGER NOT NULL,
        chain  TEXT NOT NULL
    ) WITHOUT ROWID;
    CREATE TRIGGER admin_acts_stay BEFORE DELETE ON admin_acts
        BEGIN SELECT RAISE(ABORT, 'the audit of administrative acts is append-only'); END;
    CREATE TRIGGER admin_acts_are_fixed BEFORE UPDATE ON admin_acts
        BEGIN SELECT RAISE(ABORT, 'the audit of administrative acts is append-only'); END;

    CREATE TABLE spending (                      -- what runs used; it stays when they are deleted
        tenant        TEXT NOT NULL,
        day           TEXT NOT NULL,             -- as in 2026-03-31
        owner         TEXT NOT NULL,             -- '' if their data was erased
        playbook      TEXT NOT NULL,             -- its name
        model         TEXT NOT NULL,             -- '' for the number of runs
        runs          INTEGER NOT NULL,
        calls         INTEGER NOT NULL,
        input         INTEGER NOT NULL,          -- tokens, as the next three
        output        INTEGER NOT NULL,
        cached        INTEGER NOT NULL,
        reasoning     INTEGER NOT NULL,
        cost          REAL NOT NULL,             -- US dollars
        unknown_costs INTEGER NOT NULL,          -- calls
        held          REAL NOT NULL,             -- the most that calls in progress, or lost ones, may cost
        held_tokens   INTEGER NOT NULL,
        PRIMARY KEY (tenant, day, owner, playbook, model)
    ) WITHOUT ROWID;
    """,
    # 11: how many runs have a playbook, in place of an index, of which each start changed another page in a large store.
    """
    CREATE TABLE playbook_runs (
        digest TEXT PRIMARY KEY,
        runs   INTEGER NOT NULL
    ) WITHOUT ROWID;
    INSERT INTO playbook_runs SELECT playbook, count(*) FROM runs GROUP BY playbook;
    DROP INDEX runs_of_playbook;
    """,
)

REFERRED_SINCE = 9
"""The version in which references to texts were introduced; those of an older store are found in the journals."""
FOLDED_SINCE = 4
"""The version in which the current fold was introduced; the rows of an older store are rewritten from the journals."""
