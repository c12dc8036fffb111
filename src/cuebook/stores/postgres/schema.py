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
    # 2: what a run needs from the process that drives it. The workspace of existing runs is in their first record.
    """
    ALTER TABLE runs ADD COLUMN workspace text COLLATE "C" NOT NULL DEFAULT '';
    ALTER TABLE runs ADD COLUMN needs text NOT NULL DEFAULT '[]';

    -- Each tenant has its own copy of a text, so that the data of one tenant can be moved or erased. Older texts belong to ''.
    ALTER TABLE texts ADD COLUMN tenant text COLLATE "C" NOT NULL DEFAULT '';
    ALTER TABLE texts DROP CONSTRAINT texts_pkey, ADD PRIMARY KEY (digest, tenant);
    ALTER TABLE playbooks ADD COLUMN tenant text COLLATE "C" NOT NULL DEFAULT '';
    ALTER TABLE playbooks DROP CONSTRAINT playbooks_pkey, ADD PRIMARY KEY (digest, tenant);

    WITH RECURSIVE origins (key, origin, parent) AS (
        SELECT key, key, parent FROM runs
        UNION ALL
        SELECT o.key, r.key, r.parent FROM origins o JOIN runs r ON r.id = o.parent
    )
    UPDATE runs SET workspace = convert_from(records.body, 'UTF8')::json -> 'settings' ->> 'workspace'
    FROM origins JOIN records ON records.run = origins.origin AND records.seq = 1
    WHERE origins.key = runs.key AND origins.parent = '' AND records.kind = 'RunStarted'
        AND records.body NOT LIKE 'purged:%'
        AND convert_from(records.body, 'UTF8')::json -> 'settings' ->> 'workspace' IS NOT NULL;
    """,
    # 3: slots of limits that all processes share.
    """
    CREATE TABLE slots (
        id     bigint PRIMARY KEY,
        name   text COLLATE "C" NOT NULL,          -- the limit, as in provider:openai
        driver text COLLATE "C" NOT NULL,
        until  timestamptz                         -- when it stops counting; NULL if it counts while its driver holds it
    );
    CREATE INDEX slots_by_name ON slots (name);
    """,
    # 4: a name for the channel of notices that others in the same database cannot guess; they contain replies.
    """
    ALTER TABLE cuebook_schema ADD COLUMN channel text NOT NULL
        DEFAULT 'cuebook_' || replace(gen_random_uuid()::text, '-', '');
    """,
    # 5: child runs.
    """
    ALTER TABLE runs ADD COLUMN caller text COLLATE "C" NOT NULL DEFAULT '';   -- the run that started it and drives it
    CREATE INDEX runs_by_caller ON runs (caller) WHERE caller <> '';
    """,
    # 6: files that steps produce.
    """
    CREATE TABLE files (
        digest text COLLATE "C" NOT NULL,          -- SHA-256 of the content
        tenant text COLLATE "C" NOT NULL,
        size   bigint NOT NULL,
        PRIMARY KEY (digest, tenant)               -- once all its pieces are there
    );
    CREATE TABLE pieces (
        digest text COLLATE "C" NOT NULL,          -- of the whole file
        tenant text COLLATE "C" NOT NULL,
        number integer NOT NULL,
        body   bytea NOT NULL,
        PRIMARY KEY (digest, tenant, number)
    );
    ALTER TABLE pieces ALTER COLUMN body SET STORAGE EXTERNAL;
    CREATE TABLE run_files (
        run    bigint NOT NULL,
        digest text COLLATE "C" NOT NULL,
        tenant text COLLATE "C" NOT NULL,
        PRIMARY KEY (run, digest)
    );
    CREATE INDEX runs_of_file ON run_files (digest);
    """,
    # 7: runs that wait for something which comes and goes, such as a node.
    """
    CREATE INDEX runs_in_need ON runs (key) WHERE needs <> '[]';
    """,
    # 8: retention: which runs refer to which texts, and which runs were removed.
    """
    CREATE TABLE run_texts (
        run    bigint NOT NULL,
        digest text COLLATE "C" NOT NULL,
        tenant text COLLATE "C" NOT NULL,
        PRIMARY KEY (run, digest)
    );
    CREATE INDEX runs_of_text ON run_texts (digest);
    CREATE INDEX runs_of_playbook ON runs (playbook);
    CREATE INDEX runs_by_parent ON runs (parent) WHERE parent <> '';
    CREATE INDEX signals_of_run ON signals (run);

    CREATE TABLE removals (
        run    text COLLATE "C" PRIMARY KEY,
        key    bigint NOT NULL,                    -- of the run
        tenant text COLLATE "C" NOT NULL,
        what   text NOT NULL,                      -- deleted, purged
        at     double precision NOT NULL,
        first  bigint NOT NULL DEFAULT 0,          -- of a purge: the next record
        last   bigint NOT NULL DEFAULT 0,          -- of a purge: the last record
        done   boolean NOT NULL DEFAULT false,     -- whether its space was freed
        body   text NOT NULL                       -- JSON
    );
    CREATE INDEX removals_to_do ON removals (at) WHERE NOT done;
    CREATE INDEX removals_by_age ON removals (tenant, at DESC);

    ALTER TABLE files ADD COLUMN touched double precision NOT NULL DEFAULT 0;   -- when it was last produced
    """,
    # 9: the second week: what has to be done later, what started a run, administrative acts, and what runs used.
    """
    ALTER TABLE runs ADD COLUMN trigger text COLLATE "C" NOT NULL DEFAULT '';   -- schedule:NAME and others; '' for a person

    CREATE INDEX runs_unfinished ON runs (tenant, created DESC)
        WHERE status IN ('awaiting_approval', 'awaiting_input', 'paused', 'pending', 'running');

    CREATE TABLE jobs (
        tenant  text COLLATE "C" NOT NULL,
        kind    text COLLATE "C" NOT NULL,         -- schedule, message
        name    text COLLATE "C" NOT NULL,
        due     double precision,                  -- NULL if it waits for something other than the time
        body    text NOT NULL,                     -- JSON
        version bigint NOT NULL,                   -- raised by each change
        PRIMARY KEY (kind, tenant, name)
    );
    CREATE INDEX jobs_due ON jobs (kind, due) WHERE due IS NOT NULL;

    CREATE TABLE admin_acts (                      -- the audit of administrative acts
        tenant text COLLATE "C" NOT NULL,
        seq    bigint NOT NULL,                    -- from 1, without gaps
        at     double precision NOT NULL,
        body   text NOT NULL,                      -- JSON
        chain  text NOT NULL,                      -- SHA-256 of the previous value and the body
        PRIMARY KEY (tenant, seq)
    );
    CREATE TABLE admin_heads (                     -- the last act of each tenant
        tenant text COLLATE "C" PRIMARY KEY,
        seq    bigint NOT NULL,
        chain  text NOT NULL
    );
    CREATE FUNCTION cuebook_append_only() RETURNS trigger LANGUAGE plpgsql AS
        'BEGIN RAISE EXCEPTION ''the audit of administrative acts is append-only''; END';
    CREATE TRIGGER admin_acts_stay BEFORE UPDATE OR DELETE OR TRUNCATE ON admin_acts
        FOR EACH STATEMENT EXECUTE FUNCTION cuebook_append_only();

    CREATE TABLE spending (                      -- what runs used; it stays when they are deleted
        tenant        text COLLATE "C" NOT NULL,
        day           text COLLATE "C" NOT NULL,             -- as in 2026-03-31
        owner         text COLLATE "C" NOT NULL,             -- '' if their data was erased
        playbook      text COLLATE "C" NOT NULL,             -- its name
        model         text COLLATE "C" NOT NULL,             -- '' for the number of runs
        runs          bigint NOT NULL,
        calls         bigint NOT NULL,
        input         bigint NOT NULL,          -- tokens, as the next three
        output        bigint NOT NULL,
        cached        bigint NOT NULL,
        reasoning     bigint NOT NULL,
        cost          double precision NOT NULL,             -- US dollars
        unknown_costs bigint NOT NULL,          -- calls
        held          double precision NOT NULL,             -- the most that calls in progress, or lost ones, may cost
        held_tokens   bigint NOT NULL,
        PRIMARY KEY (tenant, day, owner, playbook, model)
    );
    """,
)

REFERRED_SINCE = 8
"""The version in which references to texts were introduced; those of an older store are found in the journals."""
