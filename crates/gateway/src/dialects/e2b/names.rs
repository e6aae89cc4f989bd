//! Ids of sandboxes, which have no dash, because E2B's host names are split at one: `d-abc…` is the sandbox `iabc…`.

use super::Settings;

/// How the id of a sandbox begins.
pub(super) const FIRST: char = 'i';
const LENGTH: usize = 12;

/// The sandbox that a desk is.
pub(super) fn sandbox(desk: &str) -> String {
    format!("{FIRST}{}", desk.strip_prefix("d-").unwrap_or(desk))
}

/// The desk that a sandbox is, if the id can be one. Old clients add their own id after a dash.
pub(super) fn desk(sandbox: &str) -> Option<String> {
    let rest = sandbox.split('-').next()?.strip_prefix(FIRST)?;
    let good = rest.len() == LENGTH && rest.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    good.then(|| format!("d-{rest}"))
}

/// The template of this fleet that a name means: `base`, `base:tag` and `team/base` are one.
pub(super) fn template(settings: &Settings, name: &str) -> String {
    if let Some(ours) = settings.templates.get(name) {
        return ours.clone();
    }
    let bare = name.rsplit('/').next().unwrap_or(name).split(':').next().unwrap_or(name);
    settings.templates.get(bare).cloned().unwrap_or_else(|| bare.to_owned())
}

/// Whether a template's name is that of a snapshot.
pub(super) fn is_snapshot(name: &str) -> bool {
    name.strip_prefix("s-")
        .is_some_and(|rest| rest.len() == LENGTH && rest.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_go_there_and_back() {
        assert_eq!(sandbox("d-abcdefgh2345"), "iabcdefgh2345");
        assert_eq!(desk("iabcdefgh2345").as_deref(), Some("d-abcdefgh2345"));
        assert_eq!(desk("iabcdefgh2345-client").as_deref(), Some("d-abcdefgh2345"));
        for wrong in ["", "i", "abcdefgh23456", "iABCDEFGH2345", "i../../etcabcd", "no-such-id", "ž"] {
            assert_eq!(desk(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn names_of_templates_are_mapped() {
        let settings = Settings::default();
        for (name, ours) in
            [("base", "code"), ("team/base:v2", "code"), ("desktop", "desktop"), ("mine:1", "mine"), ("mine", "mine")]
        {
            assert_eq!(template(&settings, name), ours);
        }
    }
}
