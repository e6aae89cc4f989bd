-- What somebody who translates to the fleet has to remember: a kind of their own, a name, and what they write.
CREATE TABLE notes (
    kind      TEXT NOT NULL,
    name      TEXT NOT NULL,
    until_ms  BIGINT,             -- forgotten some time after it
    body      TEXT NOT NULL,
    PRIMARY KEY (kind, name)
);
