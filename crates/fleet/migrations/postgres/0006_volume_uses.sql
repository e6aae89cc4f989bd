-- Which desks have which volumes, written in one transaction with the desk: an exclusive volume is given out once,
-- whoever asks, and one that is in use is not deleted.
CREATE TABLE volume_uses (
    volume  TEXT NOT NULL,
    desk    TEXT NOT NULL,
    PRIMARY KEY (volume, desk)
);
CREATE INDEX volume_uses_by_desk ON volume_uses (desk);
-- By a pattern: JSON functions refuse bodies with \u0000 anywhere.
INSERT INTO volume_uses (volume, desk)
    SELECT volumes.id, desks.id
    FROM desks JOIN volumes ON volumes.project = desks.project AND strpos(desks.body, '"volume":"' || volumes.id || '"') > 0
    WHERE desks.state <> 'deleted'
    ON CONFLICT DO NOTHING;
