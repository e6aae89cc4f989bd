//! What E2B keeps of a sandbox and the fleet keeps as labels: metadata, a few switches.
//!
//! A pair of metadata that can be a label is one, under its own name, so that `hotdesk ls` shows it. All else goes into labels of
//! ours, whose names begin with `e2b:`, as pieces of JSON in base64.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hotdesk_api::desk::Desk;
use std::collections::BTreeMap;

/// How the names of our own labels begin.
const OURS: &str = "e2b:";
const SANDBOX: &str = "e2b:sandbox";
const PRIVATE: &str = "e2b:private";
const ENVIRONMENT: &str = "e2b:env";
const METADATA: &str = "e2b:meta";
/// What a label may hold, see the fleet's limits.
const LONGEST_NAME: usize = 63;
const LONGEST_VALUE: usize = 256;
/// So many of the 64 labels of a desk are pieces of ours.
const MOST_PIECES: usize = 24;
const MOST_LABELS: usize = 60;

pub(super) type Pairs = BTreeMap<String, String>;

/// What is kept of a sandbox.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Kept {
    pub(super) metadata: Pairs,
    /// Its ports need a token.
    pub(super) private: bool,
}

impl Kept {
    /// As labels; none if it is more than labels can hold.
    pub(super) fn to_labels(&self) -> Option<Pairs> {
        let mut labels = Pairs::from([(SANDBOX.to_owned(), "1".to_owned())]);
        if self.private {
            labels.insert(PRIVATE.into(), "1".into());
        }
        let (plain, odd): (Pairs, Pairs) = self.metadata.clone().into_iter().partition(|(name, value)| is_label(name, value));
        labels.extend(plain);
        put(&mut labels, METADATA, &odd)?;
        (labels.len() <= MOST_LABELS).then_some(labels)
    }

    pub(super) fn of(desk: &Desk) -> Self {
        let plain = desk.labels.iter().filter(|(name, _)| !name.starts_with(OURS));
        let mut metadata: Pairs = plain.map(|(name, value)| (name.clone(), value.clone())).collect();
        metadata.extend(get(&desk.labels, METADATA));
        Self { metadata, private: desk.labels.contains_key(PRIVATE) }
    }
}

/// The environment of a sandbox that an older version made, which kept it among the labels.
pub(super) fn old_environment(desk: &Desk) -> Pairs {
    get(&desk.labels, ENVIRONMENT)
}

/// Whether a desk was made by this dialect.
pub(super) fn is_sandbox(desk: &Desk) -> bool {
    desk.labels.contains_key(SANDBOX)
}

fn is_label(name: &str, value: &str) -> bool {
    let good = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b'/' | b':');
    let named = !name.is_empty() && name.len() <= LONGEST_NAME && name.bytes().all(good) && !name.starts_with(OURS);
    named && value.len() <= LONGEST_VALUE && !value.chars().any(char::is_control)
}

fn put(labels: &mut Pairs, name: &str, pairs: &Pairs) -> Option<()> {
    if pairs.is_empty() {
        return Some(());
    }
    let text = URL_SAFE_NO_PAD.encode(serde_json::to_vec(pairs).ok()?);
    if text.len() > LONGEST_VALUE * MOST_PIECES {
        return None;
    }
    for (number, piece) in text.as_bytes().chunks(LONGEST_VALUE).enumerate() {
        labels.insert(format!("{name}:{number:02}"), String::from_utf8_lossy(piece).into_owned());
    }
    Some(())
}

fn get(labels: &Pairs, name: &str) -> Pairs {
    let start = format!("{name}:");
    let text: String = labels.iter().filter(|(label, _)| label.starts_with(&start)).map(|(_, piece)| piece.as_str()).collect();
    URL_SAFE_NO_PAD.decode(text).ok().and_then(|json| serde_json::from_slice(&json).ok()).unwrap_or_default()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use hotdesk_api::action::Size;
    use hotdesk_api::desk::{Policy, Resources, State};

    pub(in super::super) fn desk(labels: Pairs) -> Desk {
        Desk {
            id: "d-abcdefgh2345".into(),
            name: None,
            project: "default".into(),
            template: "code".into(),
            snapshot: None,
            provider: "local".into(),
            state: State::Running,
            reason: String::new(),
            labels,
            env: Vec::new(),
            resources: Resources::default(),
            policy: Policy::default(),
            screen: Size { width: 1, height: 1 },
            created_at: "2026-01-01T00:00:00.000Z".into(),
            changed_at: "2026-01-01T00:00:01.000Z".into(),
            expires_at: None,
            idle_s: None,
            busy: None,
            cost: 0.0,
            stage: None,
            volumes: Vec::new(),
        }
    }

    #[test]
    fn everything_comes_back_as_it_was() {
        let pairs = |pairs: &[(&str, &str)]| pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect::<Pairs>();
        let kept = Kept {
            metadata: pairs(&[("plain", "a b"), ("odd name", "x"), ("control", "a\nb"), ("", "y"), ("e2b:x", "z"), ("ž", "猫")]),
            private: true,
        };
        let labels = kept.to_labels().unwrap();
        assert_eq!(labels["plain"], "a b", "what can be a label is one");
        assert!(labels.values().all(|value| value.len() <= LONGEST_VALUE));
        let desk = desk(labels);
        assert!(is_sandbox(&desk));
        assert_eq!(Kept::of(&desk), kept);
    }

    #[test]
    fn what_is_too_much_is_told() {
        let metadata = Pairs::from([("LONG".to_owned(), "x".repeat(20_000))]);
        assert_eq!(Kept { metadata, ..Kept::default() }.to_labels(), None);
        let metadata = (0..100).map(|n| (n.to_string(), String::new())).collect();
        assert_eq!(Kept { metadata, ..Kept::default() }.to_labels(), None);
    }
}
