-- What the fleet remembers. Times are milliseconds since 1970; `body` columns are JSON of the type that the table is named after.

-- `body` holds the desk's own secret in clear: an orchestrator that adopts a running desk must be able to open it.
-- That is why the file's mode is 0600. Secrets of keys are never stored, only their hashes.
CREATE TABLE desks (
    id          TEXT PRIMARY KEY,
    project     TEXT NOT NULL,
    name        TEXT,
    state       TEXT NOT NULL,
    pool        TEXT,
    created_ms  BIGINT NOT NULL,
    changed_ms  BIGINT NOT NULL,
    version     BIGINT NOT NULL,
    body        TEXT NOT NULL
);
CREATE UNIQUE INDEX desks_by_name ON desks (project, name) WHERE name IS NOT NULL AND state <> 'deleted';
CREATE INDEX desks_by_age ON desks (created_ms, id) WHERE state <> 'deleted';
CREATE INDEX desks_by_pool ON desks (pool, created_ms) WHERE pool IS NOT NULL;

-- Numbers are taken from here inside the transaction that uses them, so they are committed in order and without gaps.
CREATE TABLE counters (name TEXT PRIMARY KEY, value BIGINT NOT NULL);
INSERT INTO counters (name, value) VALUES ('events', 0), ('keys', 0);

CREATE TABLE events (
    number  BIGINT PRIMARY KEY,
    at_ms   BIGINT NOT NULL,
    desk    TEXT,
    body    TEXT NOT NULL
);
CREATE INDEX events_by_desk ON events (desk, number);
CREATE INDEX events_by_age ON events (at_ms);

-- Who may act: on a desk (`desk:ID`) or on the whole fleet (`fleet:WHAT`). Compared with the clock of the database, never of an orchestrator.
CREATE TABLE leases (what TEXT PRIMARY KEY, owner TEXT NOT NULL, until_ms BIGINT NOT NULL);
CREATE INDEX leases_by_owner ON leases (owner);
CREATE VIEW clock AS SELECT CAST(unixepoch('subsec') * 1000 AS INTEGER) AS now_ms;

-- Answers to idempotency keys.
CREATE TABLE answers (
    scope  TEXT NOT NULL,
    key    TEXT NOT NULL,
    desk   TEXT NOT NULL,
    at_ms  BIGINT NOT NULL,
    PRIMARY KEY (scope, key)
);

CREATE TABLE keys (
    id         TEXT PRIMARY KEY,
    hash       TEXT NOT NULL UNIQUE,
    ended_ms   BIGINT,            -- when it expires or was revoked
    revoked    BIGINT NOT NULL,   -- 1: for ever
    admin      BIGINT NOT NULL,
    used_ms    BIGINT,
    change     BIGINT NOT NULL,   -- counter `keys` at its last change
    body       TEXT NOT NULL
);
CREATE INDEX keys_by_change ON keys (change);

CREATE TABLE pools (template TEXT PRIMARY KEY, body TEXT NOT NULL);
CREATE TABLE snapshots (id TEXT PRIMARY KEY, body TEXT NOT NULL);
CREATE TABLE budgets (project TEXT PRIMARY KEY, body TEXT NOT NULL);

-- Money in millionths.
CREATE TABLE spending (
    project  TEXT NOT NULL,
    day      TEXT NOT NULL,
    micro    BIGINT NOT NULL,
    PRIMARY KEY (project, day)
);

-- One row per threshold that a budget crossed; its webhook is called until it answers.
CREATE TABLE alerts (
    id       TEXT PRIMARY KEY,
    at_ms    BIGINT NOT NULL,
    done_ms  BIGINT,
    body     TEXT NOT NULL
);

CREATE TABLE audit (
    number  INTEGER PRIMARY KEY AUTOINCREMENT,
    at_ms   BIGINT NOT NULL,
    body    TEXT NOT NULL
);
CREATE INDEX audit_by_age ON audit (at_ms);
