-- A key of a project reads its own events alone, without a look at those of all others.
ALTER TABLE events ADD COLUMN project TEXT;
-- By a pattern: JSON functions refuse bodies with \u0000 anywhere. A quote within a text is escaped, so this is the field.
UPDATE events SET project = substring(body FROM '"project":"([^"\\]*)"');
CREATE INDEX events_by_project ON events (project, number);
