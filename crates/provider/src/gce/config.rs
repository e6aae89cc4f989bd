//! Settings of this provider: where instances are made, of what size, and what they cost.

use super::NAME;
use crate::cloud::Price;
use crate::{Error, Result};
use hotdesk_api::desk::Resources;
use serde::{Deserialize, Serialize};

/// Settings of the provider `gce`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The project's id. Empty: the provider can't be used.
    pub project: String,
    /// Zones, the preferred one first; the next one is taken when one has no such machine left.
    pub zones: Vec<String>,
    /// The series that machines are chosen from by the size of the desk: `e2`, `n2`, `n2d`, `n4`.
    pub series: String,
    /// Machine types to choose from instead, whatever their series: the first that is large enough.
    pub machine_types: Vec<MachineType>,
    /// The project that has the images, if it is another one.
    pub image_project: Option<String>,
    /// The family of a template's images is this and the template's name.
    pub image_family: String,
    /// Where `hotdesk image publish` uploads to.
    pub bucket: Option<String>,
    pub network: Option<String>,
    /// Its name; the region is that of the zone.
    pub subnetwork: Option<String>,
    /// Network tags of every desk, for firewall rules.
    pub tags: Vec<String>,
    /// The tag of desks without a network. A firewall rule must close the way out for it; without such a tag, desks without a network are refused.
    pub closed_tag: Option<String>,
    /// An address that the internet reaches. Without one, desks reach the internet through Cloud NAT only.
    pub external_ip: bool,
    /// The account that the machines act as. None, as it should be: every program of a desk could act as it.
    pub service_account: Option<String>,
    /// Cheaper machines that Google may take back at any time.
    pub spot: bool,
    /// What becomes of a desk whose machine was taken back.
    pub preempted: Preempted,
    /// The type of the boot disk.
    pub disk_type: String,
    /// Shielded VM: only with images that boot by UEFI. None: where the image can.
    pub shielded: Option<bool>,
    /// Prices per hour, if not those of `us-central1`.
    pub price: Option<Price>,
    /// The compute API, if not Google's own address; for tests.
    pub endpoint: String,
    /// The storage API, likewise.
    pub storage_endpoint: String,
    /// Seconds after which a request without an answer is sent again.
    pub request_limit_s: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            project: String::new(),
            zones: vec!["us-central1-a".into(), "us-central1-b".into(), "us-central1-c".into(), "us-central1-f".into()],
            series: "e2".into(),
            machine_types: Vec::new(),
            image_project: None,
            image_family: "hotdesk-".into(),
            bucket: None,
            network: None,
            subnetwork: None,
            tags: vec!["hotdesk-desk".into()],
            closed_tag: None,
            external_ip: false,
            service_account: None,
            spot: false,
            preempted: Preempted::default(),
            disk_type: "pd-balanced".into(),
            shielded: None,
            price: None,
            endpoint: "https://compute.googleapis.com/compute/v1".into(),
            storage_endpoint: "https://storage.googleapis.com".into(),
            request_limit_s: 30,
        }
    }
}

/// What becomes of a desk whose machine Google took back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Preempted {
    /// Started again with its files, in its zone; in error if the zone has no machine left.
    #[default]
    Start,
    /// The same, but where the zone has no machine left it is made anew from its template in another zone, without its files.
    Recreate,
    /// In error, until somebody starts it.
    Error,
}

/// A machine type to choose.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MachineType {
    pub name: String,
    pub cpus: u32,
    pub memory_mib: u64,
}

/// E2 in `us-central1`, in USD, without discounts; see docs/provider-gce.md for source and date.
const E2: Price = Price { cpu_hour: 0.021_811_59, memory_gib_hour: 0.002_923_53, disk_gib_hour: 0.10 / HOURS_PER_MONTH };
/// Google's month.
const HOURS_PER_MONTH: f64 = 730.0;
/// Spot machines cost at most this share: Google says 60 % to 91 % less, and changes it once a month.
const SPOT_SHARE: f64 = 0.4;
/// Custom machines have whole steps of so much memory.
const MEMORY_STEP_MIB: u64 = 256;
/// The smallest boot disk.
const LEAST_DISK_GB: u64 = 10;

impl Config {
    pub(super) fn check(&self) -> Result<()> {
        let wrong = |why: String| Err(Error::Failed(format!("{NAME}: {why}")));
        if self.project.is_empty() {
            return wrong("no project is named; set `project` in [gce]".into());
        }
        if self.zones.is_empty() {
            return wrong("no zone is named; set `zones` in [gce]".into());
        }
        if let Some(zone) = self.zones.iter().find(|zone| zone.split('-').count() != 3 || !is_name(zone)) {
            return wrong(format!("`{zone}` is no zone; zones are called like us-central1-a"));
        }
        let names = self.tags.iter().chain(&self.closed_tag).chain(&self.network).chain(&self.subnetwork);
        if let Some(name) = names.into_iter().find(|name| !is_name(name)) {
            return wrong(format!("`{name}` can't be a name: small letters, digits and dashes, at most 63"));
        }
        Ok(())
    }

    /// What a desk costs per hour. A desk is charged for what it asks for; the machine that it gets may be a little larger.
    pub fn price(&self) -> Price {
        self.price.unwrap_or_else(|| {
            let share = if self.spot { SPOT_SHARE } else { 1.0 };
            Price { cpu_hour: E2.cpu_hour * share, memory_gib_hour: E2.memory_gib_hour * share, ..E2 }
        })
    }

    /// The machine type for a desk: a standard one where the size is one, else one made to measure.
    pub(super) fn machine_type(&self, resources: &Resources) -> Result<String> {
        let fits = |machine: &&MachineType| machine.cpus as f32 >= resources.cpus && machine.memory_mib >= resources.memory_mib;
        if !self.machine_types.is_empty() {
            return self.machine_types.iter().find(fits).map(|machine| machine.name.clone()).ok_or_else(|| {
                Error::Full(format!(
                    "no machine type of the settings has {} CPUs and {} MiB of memory; ask for less, or add one",
                    resources.cpus, resources.memory_mib
                ))
            });
        }
        // Above one, machines have an even number of CPUs; each has at least half a GiB and at most 8.
        let mut cpus = (resources.cpus.ceil().max(2.0) as u64).next_multiple_of(2);
        let memory = resources.memory_mib.next_multiple_of(MEMORY_STEP_MIB);
        while memory > cpus * 8192 {
            cpus += 2;
        }
        let memory = memory.max(cpus * 512);
        let series = &self.series;
        let standard = |kind: &str| format!("{series}-{kind}-{cpus}");
        let usual = [2, 4, 8, 16, 32].contains(&cpus);
        Ok(match memory / cpus {
            4096 if usual && memory.is_multiple_of(cpus) => standard("standard"),
            8192 if usual && memory.is_multiple_of(cpus) && cpus <= 16 => standard("highmem"),
            1024 if usual && memory.is_multiple_of(cpus) => standard("highcpu"),
            _ => format!("{series}-custom-{cpus}-{memory}"),
        })
    }

    /// Gigabytes of the boot disk: what the desk asks for, and never less than what it is made of.
    pub(super) fn disk_gb(resources: &Resources, source_gb: u64) -> u64 {
        resources.disk_mib.div_ceil(1024).max(source_gb).max(LEAST_DISK_GB)
    }
}

/// The region of a zone.
pub(super) fn region(zone: &str) -> &str {
    zone.rsplit_once('-').map_or(zone, |(region, _)| region)
}

/// Whether it is a name as Google wants it.
pub(super) fn is_name(text: &str) -> bool {
    text.len() <= 63
        && text.starts_with(|c: char| c.is_ascii_lowercase())
        && !text.ends_with('-')
        && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_fits_the_desk() {
        let config = Config::default();
        let size = |cpus, memory_mib| config.machine_type(&Resources { cpus, memory_mib, disk_mib: 1 }).unwrap();
        assert_eq!(size(2.0, 4096), "e2-custom-2-4096");
        assert_eq!(size(2.0, 8192), "e2-standard-2");
        assert_eq!(size(0.5, 300), "e2-custom-2-1024");
        assert_eq!(size(3.0, 16384), "e2-standard-4");
        assert_eq!(size(2.0, 40_000), "e2-custom-6-40192");
        assert_eq!(size(4.0, 32_768), "e2-highmem-4");
        let table = vec![
            MachineType { name: "e2-small".into(), cpus: 2, memory_mib: 2048 },
            MachineType { name: "n4-standard-8".into(), cpus: 8, memory_mib: 32_768 },
        ];
        let config = Config { machine_types: table, ..Config::default() };
        let size = |cpus, memory_mib| config.machine_type(&Resources { cpus, memory_mib, disk_mib: 1 });
        assert_eq!(size(1.0, 1024).unwrap(), "e2-small");
        assert_eq!(size(3.0, 1024).unwrap(), "n4-standard-8");
        assert!(matches!(size(16.0, 1), Err(Error::Full(_))));
    }

    #[test]
    fn disks_hold_their_image() {
        let disk = |disk_mib, source| Config::disk_gb(&Resources { disk_mib, ..Resources::default() }, source);
        assert_eq!((disk(5120, 8), disk(20_481, 8), disk(1024, 50)), (10, 21, 50));
    }

    #[test]
    fn settings_that_can_not_work_are_refused() {
        let good = Config { project: "p".into(), ..Config::default() };
        assert!(good.check().is_ok());
        assert!(Config::default().check().is_err(), "no project");
        assert!(Config { zones: vec!["us-central1".into()], ..good.clone() }.check().is_err());
        assert!(Config { tags: vec!["Big".into()], ..good }.check().is_err());
        assert_eq!(region("europe-west4-b"), "europe-west4");
    }

    #[test]
    fn spot_costs_less_and_the_disk_the_same() {
        let (full, spot) = (Config::default().price(), Config { spot: true, ..Config::default() }.price());
        assert!(spot.cpu_hour < full.cpu_hour && spot.disk_gib_hour == full.disk_gib_hour);
        // Two CPUs and 8 GiB are an e2-standard-2, whose price is listed.
        assert!((full.cpu_hour * 2.0 + full.memory_gib_hour * 8.0 - 0.067_011).abs() < 1e-5);
    }
}
