-- Named volumes: directories that outlive desks.
CREATE TABLE volumes (
    id       TEXT PRIMARY KEY,
    project  TEXT NOT NULL,
    name     TEXT NOT NULL,
    body     TEXT NOT NULL,
    UNIQUE (project, name)
);
