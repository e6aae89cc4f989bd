-- What holds for the whole fleet and is never forgotten: `identity` (which fleet this is), `format` (the least version of the
-- rows' format that an orchestrator must know), `put_back` (since when this is an older copy that somebody put back).
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL);
INSERT INTO facts (name, value) VALUES ('format', '1');

-- The identity was kept among the answers to idempotency keys, which are forgotten after a month.
INSERT INTO facts (name, value) SELECT 'identity', desk FROM answers WHERE scope = 'hotdesk' AND key = 'fleet';
DELETE FROM answers WHERE scope = 'hotdesk' AND key = 'fleet';
