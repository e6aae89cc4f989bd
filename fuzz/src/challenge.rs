//! Any header of a registry: it is a way in or none, holds nothing that the header did not, and reads the same when it is written again.

use super::Challenge;

pub(crate) fn run(input: &[u8]) {
    let Ok(header) = std::str::from_utf8(input) else { return };
    let Some(Challenge::Bearer { realm, service, scope }) = Challenge::parse(header) else { return };
    let words = [Some(&realm), service.as_ref(), scope.as_ref()];
    assert!(words.iter().flatten().map(|word| word.len()).sum::<usize>() < header.len());
    let mut again = String::from("Bearer ");
    for (name, word) in ["realm", "service", "scope"].iter().zip(words) {
        if let Some(word) = word {
            again += &format!("{name}=\"{}\", ", word.replace('\\', "\\\\").replace('"', "\\\""));
        }
    }
    assert_eq!(Challenge::parse(&again), Some(Challenge::Bearer { realm: realm.clone(), service, scope }));
}
