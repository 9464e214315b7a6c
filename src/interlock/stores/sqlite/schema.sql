-- Times are milliseconds since the machine booted; a row of an earlier boot is of the dead.
CREATE TABLE IF NOT EXISTS leases (
    scope    TEXT NOT NULL,
    lock_id  TEXT NOT NULL,
    record   TEXT NOT NULL,     -- the JSON that n8n's sidecar would hold
    fence    INTEGER NOT NULL,
    permits  INTEGER NOT NULL,
    expires  INTEGER NOT NULL,
    offered  INTEGER NOT NULL,  -- handed over, but not claimed yet
    bound    INTEGER NOT NULL,  -- ends with its process
    client   TEXT NOT NULL,
    realm    TEXT NOT NULL,
    pid      INTEGER NOT NULL,
    started  INTEGER,
    PRIMARY KEY (scope, lock_id)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS offers ON leases (client) WHERE offered;

CREATE TABLE IF NOT EXISTS waiters (
    scope    TEXT NOT NULL,
    place    INTEGER NOT NULL,
    lock_id  TEXT NOT NULL,
    identity TEXT NOT NULL,
    ttl      INTEGER NOT NULL,
    permits  INTEGER NOT NULL,
    bound    INTEGER NOT NULL,
    client   TEXT NOT NULL,
    realm    TEXT NOT NULL,
    pid      INTEGER NOT NULL,
    started  INTEGER,
    PRIMARY KEY (scope, place)
) WITHOUT ROWID;
CREATE UNIQUE INDEX IF NOT EXISTS waiting ON waiters (scope, lock_id);

CREATE TABLE IF NOT EXISTS seen (
    scope    TEXT NOT NULL,
    client   TEXT NOT NULL,
    at       INTEGER NOT NULL,
    PRIMARY KEY (scope, client)
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS high (fence INTEGER NOT NULL);
INSERT INTO high SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM high);

CREATE TABLE IF NOT EXISTS statuses (
    key      TEXT PRIMARY KEY,
    value    TEXT NOT NULL,
    details  TEXT NOT NULL,
    lock_id  TEXT,              -- of the lease whose progress it is
    realm    TEXT NOT NULL,
    expires  INTEGER NOT NULL
) WITHOUT ROWID;

-- Who is to be told when the status of a key changes. An older one lacks a column; who watches comes again.
DROP TABLE IF EXISTS watchers;
CREATE TABLE watchers (
    key      TEXT NOT NULL,
    client   TEXT NOT NULL,
    realm    TEXT NOT NULL,
    until    INTEGER NOT NULL,
    PRIMARY KEY (key, client)
) WITHOUT ROWID;

-- Who is to be told of all events, which are only written while there is somebody.
CREATE TABLE IF NOT EXISTS followers (
    client   TEXT PRIMARY KEY,
    realm    TEXT NOT NULL,
    until    INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS events (
    id       INTEGER PRIMARY KEY AUTOINCREMENT,
    event    TEXT NOT NULL
);

-- Rate limits. `name` has boot, scope, algorithm and `per`; moments are microseconds since the machine booted,
-- but those of fixed windows, which n8n counts from 1970.
CREATE TABLE IF NOT EXISTS levels (
    name     TEXT PRIMARY KEY,
    level    REAL NOT NULL,
    at       INTEGER NOT NULL,
    ends     INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS windows (
    name     TEXT NOT NULL,
    number   INTEGER NOT NULL,
    used     INTEGER NOT NULL,
    ends     INTEGER NOT NULL,
    PRIMARY KEY (name, number)
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS passes (
    name     TEXT NOT NULL,
    total    INTEGER NOT NULL,  -- how many were let through until then, these included
    cost     INTEGER NOT NULL,
    at       INTEGER NOT NULL,
    ends     INTEGER NOT NULL,
    PRIMARY KEY (name, total)
) WITHOUT ROWID;

-- What was booked and given back.
CREATE TABLE IF NOT EXISTS vacancies (
    name     TEXT NOT NULL,
    slot     INTEGER NOT NULL,
    cost     INTEGER NOT NULL,
    PRIMARY KEY (name, slot)
) WITHOUT ROWID;
