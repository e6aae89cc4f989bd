//! Names of owners.

use nix::unistd::{Gid, Group, Uid, User};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// Names that were found. Those that are not are asked for again: users are added while a desk runs.
static USERS: Mutex<Option<HashMap<u32, String>>> = Mutex::new(None);
static GROUPS: Mutex<Option<HashMap<u32, String>>> = Mutex::new(None);

/// The name of a user.
pub(super) fn user(number: u32) -> Option<String> {
    known(&USERS, number, || User::from_uid(Uid::from_raw(number)).ok().flatten().map(|user| user.name))
}

/// The name of a group.
pub(super) fn group(number: u32) -> Option<String> {
    known(&GROUPS, number, || Group::from_gid(Gid::from_raw(number)).ok().flatten().map(|group| group.name))
}

fn known(table: &Mutex<Option<HashMap<u32, String>>>, number: u32, ask: impl FnOnce() -> Option<String>) -> Option<String> {
    let mut table = table.lock().unwrap_or_else(PoisonError::into_inner);
    let names = table.get_or_insert_default();
    if let Some(name) = names.get(&number) {
        return Some(name.clone());
    }
    let name = ask()?;
    names.insert(number, name.clone());
    Some(name)
}

#[cfg(test)]
mod tests {
    #[test]
    fn root_has_a_name_and_a_stranger_has_none() {
        for _ in 0..2 {
            assert_eq!(super::user(0).as_deref(), Some("root"));
            assert_eq!(super::group(0).as_deref(), Some("root"));
            assert_eq!(super::user(3_999_999_999), None);
        }
    }
}
