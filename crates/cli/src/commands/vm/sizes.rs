//! Sizes as container images write them, and what there is.

/// `4G`, `512M`, `64GB`, `8192` (MiB, as QEMU reads it), in bytes.
pub(super) fn parse(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let shift = match unit.trim().to_ascii_uppercase().trim_end_matches("IB").trim_end_matches('B') {
        "" | "M" => 20,
        "K" => 10,
        "G" => 30,
        "T" => 40,
        _ => return Err(format!("`{text}` is not a size; write it like 4G or 512M")),
    };
    let number: u64 = number.parse().map_err(|_| format!("`{text}` is not a size; write it like 4G or 512M"))?;
    number
        .checked_mul(1 << shift)
        .filter(|bytes| *bytes > 0)
        .ok_or_else(|| format!("`{text}` is no size that a machine can have"))
}

/// Processors that this process may use.
pub(super) fn cpus() -> u32 {
    std::thread::available_parallelism().map_or(1, |count| u32::try_from(count.get()).unwrap_or(u32::MAX))
}

/// Memory that this container may use, or that the machine has.
pub(super) fn memory_mib() -> u64 {
    let number = |path: &str| std::fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let limit = number("/sys/fs/cgroup/memory.max").or_else(|| number("/sys/fs/cgroup/memory/memory.limit_in_bytes"));
    let all = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
        line.trim().trim_end_matches(" kB").parse::<u64>().ok()
    });
    limit.unwrap_or(u64::MAX).min(all.unwrap_or(4 << 20) << 10) >> 20
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_container_images() {
        for (text, bytes) in
            [("4G", 4 << 30), ("512M", 512 << 20), ("64GB", 64 << 30), ("8192", 8 << 30), ("2 GiB", 2 << 30), ("1t", 1 << 40)]
        {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
        for text in ["", "G", "4X", "-1G", "0", "99999999999999999999G", "99999999999T"] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert!(cpus() > 0 && memory_mib() > 0);
    }
}
