-- Which desks have which volumes, written in one transaction with the desk: an exclusive volume is given out once,
-- whoever asks, and one that is in use is not deleted.
CREATE TABLE volume_uses (
    volume  TEXT NOT NULL,
    desk    TEXT NOT NULL,
    PRIMARY KEY (volume, desk)
);
CREATE INDEX volume_uses_by_desk ON volume_uses (desk);
INSERT OR IGNORE INTO volume_uses (volume, desk)
    SELECT json_extract(used.value, '$.volume'), desks.id
    FROM desks, json_each(CASE WHEN json_valid(desks.body) THEN desks.body ELSE '{}' END, '$.spec.volumes') AS used
    WHERE desks.state <> 'deleted';
