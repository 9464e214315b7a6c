-- Times are milliseconds since the machine booted; a row of an earlier boot is of the dead.
CREATE TABLE leases (
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
CREATE INDEX offers ON leases (client) WHERE offered;

CREATE TABLE waiters (
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
CREATE UNIQUE INDEX waiting ON waiters (scope, lock_id);

CREATE TABLE seen (
    scope    TEXT NOT NULL,
    client   TEXT NOT NULL,
    at       INTEGER NOT NULL,
    PRIMARY KEY (scope, client)
) WITHOUT ROWID;

CREATE TABLE high (fence INTEGER NOT NULL);
INSERT INTO high VALUES (0);
