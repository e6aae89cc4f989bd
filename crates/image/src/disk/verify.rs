//! Whether two disks are the same for their guest, whatever their formats are.

use super::chain::{args_of, check_safe};
use super::pipeline;
use super::qcow2::writer::CLUSTER;
use super::source::Source;
use super::{Meter, tools};
use crate::{Error, Result};
use serde::Serialize;
use std::path::Path;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Difference {
    /// The disks have these sizes.
    Size { a: u64, b: u64 },
    /// The first byte that is not the same.
    Byte { offset: u64 },
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Size { a, b } => write!(f, "the sizes differ: {a} and {b} bytes"),
            Self::Byte { offset } => write!(f, "the first difference is at byte {offset}"),
        }
    }
}

/// Compares two disks; nothing means that they are the same.
pub fn verify(a: &Path, b: &Path, meter: &Meter) -> Result<Option<Difference>> {
    let (links_a, links_b) = (check_safe(a)?, check_safe(b)?);
    if !links_a.iter().chain(&links_b).all(|link| link.format.native()) {
        meter.begin("comparing", 0);
        return by_qemu(&args_of(&links_a)?.filename(), &args_of(&links_b)?.filename(), meter);
    }
    let (a, b) = (Source::of(links_a)?, Source::of(links_b)?);
    if a.size() != b.size() {
        return Ok(Some(Difference::Size { a: a.size(), b: b.size() }));
    }
    meter.begin("comparing", a.size());
    let next = |from| {
        Ok(match (a.next_data(from)?, b.next_data(from)?) {
            (Some(a), Some(b)) => Some(u64::min(a, b)),
            (a, b) => a.or(b),
        })
    };
    let make = || {
        let (mut left, mut right) = (vec![0; CLUSTER as usize], vec![0; CLUSTER as usize]);
        let (a, b) = (&a, &b);
        Ok(move |cluster| {
            a.read(&mut left, cluster * CLUSTER)?;
            b.read(&mut right, cluster * CLUSTER)?;
            if left == right {
                return Ok(None);
            }
            let within = left.iter().zip(&right).position(|(a, b)| a != b).unwrap_or(0);
            Ok(Some(cluster * CLUSTER + within as u64))
        })
    };
    let mut difference = None;
    pipeline::run(a.size(), meter, next, make, |_, offset| {
        difference = Some(Difference::Byte { offset });
        Ok(false)
    })?;
    Ok(difference)
}

/// For formats that only QEMU reads.
fn by_qemu(a: &str, b: &str, meter: &Meter) -> Result<Option<Difference>> {
    let output = tools::run("qemu-img", &["compare", a, b], meter)?;
    match output.code {
        Some(0) => Ok(None),
        Some(1) => {
            let offset = output.text.split_whitespace().find_map(|word| word.trim_end_matches('!').parse().ok()).unwrap_or(0);
            Ok(Some(Difference::Byte { offset }))
        }
        _ => Err(Error::Failed(format!("qemu-img compare failed: {}", output.text))),
    }
}
