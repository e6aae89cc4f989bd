//! One suite for both databases: a real SQLite file, and a real PostgreSQL that `scripts/postgres` starts.

mod databases;
mod failures;
mod races;
mod rules;

use super::*;
use hotdesk_api::action::Size;
use hotdesk_api::desk::Resources;
use std::collections::BTreeMap;

/// A desk of project `default`, running.
pub(crate) fn desk(id: &str) -> Record {
    Record {
        id: id.into(),
        name: None,
        project: "default".into(),
        key: "k-1".into(),
        provider: "local".into(),
        spec: DeskSpec {
            id: id.into(),
            template: "bare".into(),
            snapshot: None,
            resources: Resources::default(),
            screen: Size { width: 1280, height: 800 },
            env: BTreeMap::from([("ODD".into(), "a\u{0}b \u{1f600}".into())]),
            labels: BTreeMap::new(),
            network: true,
            vnc_password: None,
            secret: "secret".into(),
            volumes: Vec::new(),
        },
        policy: Policy::default(),
        state: State::Running,
        reason: "made".into(),
        placed: None,
        pool: None,
        created_ms: 1_000,
        changed_ms: 1_000,
        active_ms: 1_000,
        expires_ms: None,
        cost_micro: 0,
        cost_until_ms: 1_000,
        archive: None,
        commands_env: BTreeMap::new(),
        asked: None,
        version: 0,
        unknown: None,
        unreadable: false,
    }
}

pub(crate) fn event(desk: &str, reason: &str) -> Event {
    Event {
        number: 0,
        at: "2026-01-31T12:00:00Z".into(),
        desk: Some(desk.into()),
        project: Some("default".into()),
        kind: "state".into(),
        state: Some(State::Running),
        reason: reason.into(),
        by: "test".into(),
    }
}

pub(crate) fn with_volume(id: &str, volume: &str) -> Record {
    let mut record = desk(id);
    record.spec.volumes.push(hotdesk_provider::VolumePlace {
        volume: volume.into(),
        name: volume.into(),
        directory: "/v".into(),
        at: "/vm".into(),
        read_only: false,
        subpath: None,
        source: None,
    });
    record
}

pub(crate) fn volume(id: &str, exclusive: bool) -> Volume {
    Volume {
        id: id.into(),
        name: id.into(),
        project: "default".into(),
        source: None,
        exclusive,
        created_at: String::new(),
        desks: Vec::new(),
    }
}
