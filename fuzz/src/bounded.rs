//! The fuzz targets of a crate, each a function of `fuzz/src` that the module of its parser includes. `scripts/fuzz` runs them for as
//! long as one likes, guided by coverage. Ordinary tests run them without libFuzzer: on the inputs of `fuzz/seeds` and on so many
//! changed ones, the same every time, so that they are built and run with every change.

#[cfg(test)]
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// `NAME, ROUNDS, FUNCTION;` is a function for libFuzzer, and a test of that name.
macro_rules! targets {
    ($($name:ident, $rounds:literal, $run:path;)*) => {$(
        #[cfg(test)]
        #[test]
        fn $name() {
            bounded::run(stringify!($name), $rounds, $run);
        }

        #[cfg(all(fuzzing, not(test)))]
        pub fn $name(input: &[u8]) {
            $run(input);
        }
    )*};
}

/// `target` names the folder of seeds.
#[cfg(test)]
pub(crate) fn run(target: &str, rounds: usize, try_one: impl Fn(&[u8])) {
    let folder = format!("{}/../../fuzz/seeds/{target}", env!("CARGO_MANIFEST_DIR"));
    let mut seeds: Vec<Vec<u8>> =
        std::fs::read_dir(&folder).unwrap().map(|entry| std::fs::read(entry.unwrap().path()).unwrap()).collect();
    seeds.sort();
    assert!(seeds.len() >= 2, "{folder} has too few inputs");
    // xorshift: the same numbers every time.
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below.max(1) as u64) as usize
    };
    for round in 0..seeds.len() + rounds {
        let mut input = seeds[round % seeds.len()].clone();
        let changes = if round < seeds.len() { 0 } else { 1 + random(4) };
        for _ in 0..changes {
            let at = random(input.len());
            match random(6) {
                0 => input.truncate(at),
                1 => input.insert(at, random(256) as u8),
                2 if at < input.len() => input[at] ^= 1 << random(8),
                3 if at < input.len() => input[at] = [0, 1, 0x7f, 0x80, 0xff, b'"', b'\n'][random(7)],
                4 => {
                    // A piece of another one.
                    let other = &seeds[random(seeds.len())];
                    let from = random(other.len());
                    input.splice(at..at, other[from..(from + 1 + random(16)).min(other.len())].iter().copied());
                }
                _ if at < input.len() => input[at] = random(256) as u8,
                _ => {}
            }
        }
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| try_one(&input))) {
            eprintln!("target {target} failed in round {round} on {:?}", input.escape_ascii().to_string());
            resume_unwind(panic);
        }
    }
}
