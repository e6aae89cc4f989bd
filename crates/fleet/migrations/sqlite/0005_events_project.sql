-- A key of a project reads its own events alone, without a look at those of all others.
ALTER TABLE events ADD COLUMN project TEXT;
UPDATE events SET project = json_extract(body, '$.project') WHERE json_valid(body);
CREATE INDEX events_by_project ON events (project, number);
