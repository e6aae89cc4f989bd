//! The form of a request, checked before anything else; each refusal says what is wrong and what would be right.

use crate::error::{Error, Result};
use hotdesk_api::action::Size;
use hotdesk_api::desk::{DeskChange, NewDesk, Policy, Resources};
use hotdesk_api::fleet::PoolSpec;
use std::collections::BTreeMap;

/// Names go into host names, paths and labels; 63 is what the narrowest of them takes.
const LONGEST_NAME: usize = 63;
const MOST_LABELS: usize = 64;
const LONGEST_LABEL: usize = 256;
const MOST_VARIABLES: usize = 256;
/// A program's environment is at most 128 KiB per variable; ours stays well below in all.
const LONGEST_VARIABLE: usize = 32 << 10;
const LARGEST_ENVIRONMENT: usize = 96 << 10;
/// A desktop with nothing open needs this much.
const LEAST_CPUS: f32 = 0.1;
const LEAST_MEMORY_MIB: u64 = 128;
const LEAST_DISK_MIB: u64 = 64;
const MOST_CPUS: f32 = 1024.0;
const MOST_MIB: u64 = 64 << 20;
/// As the desk's own server takes it: below it no window is of use, above it coordinates and memory end.
const SCREEN_SIDES: std::ops::RangeInclusive<u32> = 64..=16_384;
const MOST_PIXELS: u64 = 64 << 20;
const LONGEST_PASSWORD: usize = 64;
/// Ten years.
const LONGEST_SECONDS: u64 = 10 * 365 * 24 * 3600;
const LONGEST_QUEUE: u64 = 3600;
/// Of one pool.
const LARGEST_POOL: u32 = 1000;

fn bad<T>(what: impl Into<String>) -> Result<T> {
    Err(Error::Invalid(what.into()))
}

pub(crate) fn new_desk(request: &NewDesk) -> Result<()> {
    if let Some(name) = &request.name {
        desk_name(name)?;
    }
    for (what, name) in [
        ("template", &request.template),
        ("project", &request.project),
        ("provider", &request.provider),
        ("snapshot", &request.snapshot),
    ] {
        if let Some(name) = name {
            plain_name(what, name)?;
        }
    }
    if request.template.is_some() && request.snapshot.is_some() {
        return bad("a desk starts from a template or from a snapshot; leave one of them out");
    }
    labels(request.labels.iter().flatten().map(|(k, v)| (k, Some(v))))?;
    for env in request.env.iter().chain(&request.commands_env) {
        environment(env)?;
    }
    // What is left out is good in any case.
    resources(&request.resources.or(Resources::default()))?;
    policy(&request.policy.or(Policy::default()))?;
    if let Some(size) = request.screen {
        screen(size)?;
    }
    if let Some(password) = &request.vnc_password
        && (password.is_empty() || password.len() > LONGEST_PASSWORD || password.chars().any(char::is_control))
    {
        return bad(format!("vnc_password is 1 to {LONGEST_PASSWORD} bytes without control characters"));
    }
    crate::volumes::check_mounts(request.volumes.as_deref().unwrap_or_default())?;
    if request.queue_s > LONGEST_QUEUE {
        return bad(format!("queue_s is at most {LONGEST_QUEUE}"));
    }
    Ok(())
}

pub(crate) fn change(change: &DeskChange) -> Result<()> {
    if let Some(name) = &change.name {
        desk_name(name)?;
    }
    labels(change.labels.iter().map(|(k, v)| (k, v.as_ref())))?;
    change.policy.map_or(Ok(()), |asked| policy(&asked.or(Policy::default())))
}

pub(crate) fn pool(spec: &PoolSpec) -> Result<()> {
    plain_name("template", &spec.template)?;
    resources(&spec.resources.or(Resources::default()))?;
    if spec.min > spec.max || spec.max > LARGEST_POOL {
        return bad(format!(
            "a pool keeps min to max desks ready, and max is at most {LARGEST_POOL}; {} to {} is not that",
            spec.min, spec.max
        ));
    }
    if spec.max_hourly.is_some_and(|m| !m.is_finite() || m < 0.0) {
        return bad("max_hourly is an amount of money, zero or more");
    }
    if spec.cool_down_s > LONGEST_SECONDS {
        return bad(format!("cool_down_s is at most {LONGEST_SECONDS}"));
    }
    Ok(())
}

/// Nor must a volume's.
pub(crate) fn volume_name(name: &str) -> Result<()> {
    plain_name("name", name)?;
    if name.starts_with("v-") {
        return bad(format!("the name {name} looks like an id; choose one that does not begin with v-"));
    }
    Ok(())
}

/// A desk's name must not look like an id, because both are taken everywhere.
fn desk_name(name: &str) -> Result<()> {
    plain_name("name", name)?;
    if is_id(name) {
        return bad(format!("the name {name} looks like an id; choose one that does not begin with d-"));
    }
    Ok(())
}

pub(crate) fn is_id(text: &str) -> bool {
    text.strip_prefix("d-")
        .is_some_and(|rest| rest.len() == 12 && rest.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit()))
}

fn plain_name(what: &str, name: &str) -> Result<()> {
    let good = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    let first = name.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric());
    if first && name.len() <= LONGEST_NAME && name.bytes().all(good) {
        return Ok(());
    }
    bad(format!("{what}: 1 to {LONGEST_NAME} letters, digits, dashes, dots and underscores, the first a letter or digit"))
}

fn labels<'a>(labels: impl Iterator<Item = (&'a String, Option<&'a String>)>) -> Result<()> {
    let mut count = 0;
    for (key, value) in labels {
        count += 1;
        let good = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b'/' | b':');
        if key.is_empty() || key.len() > LONGEST_NAME || !key.bytes().all(good) {
            return bad(format!("a label's name is 1 to {LONGEST_NAME} letters, digits and any of - _ . / :"));
        }
        if value.is_some_and(|v| v.len() > LONGEST_LABEL || v.chars().any(char::is_control)) {
            return bad(format!("the label {key} is longer than {LONGEST_LABEL} bytes or has control characters"));
        }
    }
    if count > MOST_LABELS {
        return bad(format!("a desk has at most {MOST_LABELS} labels, not {count}"));
    }
    Ok(())
}

fn environment(env: &BTreeMap<String, String>) -> Result<()> {
    if env.len() > MOST_VARIABLES {
        return bad(format!("env has at most {MOST_VARIABLES} variables, not {}", env.len()));
    }
    let mut size = 0;
    for (name, value) in env {
        let good = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
        let first = name.bytes().next().is_some_and(|b| !b.is_ascii_digit());
        if !first || name.len() > LONGEST_LABEL || !name.bytes().all(good) {
            return bad("the name of a variable is letters, digits and underscores, and begins with no digit".to_owned());
        }
        if value.len() > LONGEST_VARIABLE || value.contains('\0') {
            return bad(format!("the variable {name} is longer than {LONGEST_VARIABLE} bytes or has a NUL in it"));
        }
        size += name.len() + value.len() + 2;
    }
    if size > LARGEST_ENVIRONMENT {
        return bad(format!("env is {size} bytes in all, and {LARGEST_ENVIRONMENT} is the limit"));
    }
    Ok(())
}

fn resources(resources: &Resources) -> Result<()> {
    if !resources.cpus.is_finite() || resources.cpus < LEAST_CPUS || resources.cpus > MOST_CPUS {
        return bad(format!("cpus is {LEAST_CPUS} to {MOST_CPUS}"));
    }
    if !(LEAST_MEMORY_MIB..=MOST_MIB).contains(&resources.memory_mib) {
        return bad(format!("memory_mib is {LEAST_MEMORY_MIB} to {MOST_MIB}"));
    }
    if !(LEAST_DISK_MIB..=MOST_MIB).contains(&resources.disk_mib) {
        return bad(format!("disk_mib is {LEAST_DISK_MIB} to {MOST_MIB}"));
    }
    Ok(())
}

fn policy(policy: &Policy) -> Result<()> {
    let times = [policy.auto_stop_s, policy.auto_archive_s, policy.auto_delete_s, policy.ttl_s];
    if times.iter().any(|t| *t > LONGEST_SECONDS) {
        return bad(format!("the times of a policy are at most {LONGEST_SECONDS} seconds; zero means never"));
    }
    Ok(())
}

fn screen(size: Size) -> Result<()> {
    let Size { width, height } = size;
    if !SCREEN_SIDES.contains(&width) || !SCREEN_SIDES.contains(&height) || u64::from(width) * u64::from(height) > MOST_PIXELS {
        return bad(format!(
            "a screen of {width}x{height} can't be made: each side is {} to {} pixels, and {MOST_PIXELS} pixels in all",
            SCREEN_SIDES.start(),
            SCREEN_SIDES.end()
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_requests_pass() {
        new_desk(&NewDesk::default()).unwrap();
        let full = NewDesk {
            name: Some("build-7".into()),
            template: Some("office".into()),
            labels: Some([("team/name".to_owned(), "the red one".to_owned())].into()),
            env: Some([("_HTTP_PROXY2".to_owned(), "x=y".to_owned())].into()),
            screen: Some(Size { width: 1280, height: 800 }),
            ..NewDesk::default()
        };
        new_desk(&full).unwrap();
    }

    #[test]
    fn bad_requests_are_refused_with_a_sentence() {
        let d = NewDesk::default;
        let many = (0..65).map(|n| (format!("l{n}"), String::new())).collect();
        let bad = [
            NewDesk { name: Some(String::new()), ..d() },
            NewDesk { name: Some("-x".into()), ..d() },
            NewDesk { name: Some("a/b".into()), ..d() },
            NewDesk { name: Some("d-abcdefghij23".into()), ..d() },
            NewDesk { name: Some("x".repeat(64)), ..d() },
            NewDesk { template: Some("../etc".into()), ..d() },
            NewDesk { template: Some("a".into()), snapshot: Some("s-1".into()), ..d() },
            NewDesk { labels: Some(many), ..d() },
            NewDesk { labels: Some([("a b".to_owned(), String::new())].into()), ..d() },
            NewDesk { labels: Some([("a".to_owned(), "x\ny".to_owned())].into()), ..d() },
            NewDesk { env: Some([("1A".to_owned(), String::new())].into()), ..d() },
            NewDesk { env: Some([("A=B".to_owned(), String::new())].into()), ..d() },
            NewDesk { env: Some([("A".to_owned(), "\0".to_owned())].into()), ..d() },
            NewDesk { resources: Resources { cpus: f32::NAN, ..Resources::default() }.into(), ..d() },
            NewDesk { resources: Resources { memory_mib: 1, ..Resources::default() }.into(), ..d() },
            NewDesk { resources: Resources { disk_mib: u64::MAX, ..Resources::default() }.into(), ..d() },
            NewDesk { screen: Some(Size { width: 1, height: 800 }), ..d() },
            NewDesk { screen: Some(Size { width: 16_384, height: 16_384 }), ..d() },
            NewDesk { vnc_password: Some(String::new()), ..d() },
            NewDesk { policy: Policy { ttl_s: u64::MAX, ..Policy::default() }.into(), ..d() },
            NewDesk { queue_s: 4000, ..d() },
        ];
        for request in bad {
            let error = new_desk(&request).expect_err(&format!("{request:?}"));
            assert!(matches!(error, Error::Invalid(_)));
            assert!(error.to_string().len() > 15, "{error}");
        }
    }
}
