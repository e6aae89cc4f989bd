//! The steps that bring a database to this version's tables, embedded from `migrations/`.
//!
//! Not `sqlx::migrate!`: that macro would have every build compile both database drivers a second time, for itself.

use sqlx::migrate::{Migration, MigrationType, Migrator};
use sqlx::{AssertSqlSafe, SqlSafeStr};

/// One file of `migrations/`: `0001_fleet.sql` is version 1, "fleet".
pub(super) type File = (i64, &'static str, &'static str);

/// The files of one database, in their order.
macro_rules! files {
    ($database:literal) => {
        &[
            (1, "fleet", include_str!(concat!("../../migrations/", $database, "/0001_fleet.sql"))),
            (2, "volumes", include_str!(concat!("../../migrations/", $database, "/0002_volumes.sql"))),
            (3, "notes", include_str!(concat!("../../migrations/", $database, "/0003_notes.sql"))),
            (4, "facts", include_str!(concat!("../../migrations/", $database, "/0004_facts.sql"))),
            (5, "events_project", include_str!(concat!("../../migrations/", $database, "/0005_events_project.sql"))),
            (6, "volume_uses", include_str!(concat!("../../migrations/", $database, "/0006_volume_uses.sql"))),
        ]
    };
}

pub(super) const SQLITE: &[File] = files!("sqlite");
pub(super) const POSTGRES: &[File] = files!("postgres");

pub(super) fn migrator(files: &'static [File]) -> Migrator {
    let step = |&(version, name, sql): &File| {
        Migration::new(version, name.into(), MigrationType::Simple, AssertSqlSafe(sql).into_sql_str(), false)
    };
    Migrator::with_migrations(files.iter().map(step).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn every_file_of_the_folder_is_embedded_under_its_number_and_name() {
        for (database, files) in [("sqlite", SQLITE), ("postgres", POSTGRES)] {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations").join(database);
            let mut there: Vec<_> =
                std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
            there.sort();
            let embedded: Vec<_> = files.iter().map(|(version, name, _)| format!("{version:04}_{name}.sql")).collect();
            assert_eq!(there, embedded, "{database}");
        }
    }
}
