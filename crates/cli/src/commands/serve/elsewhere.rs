//! Settings of providers whose desks are not on this machine: `[kubernetes]`, `[daytona]`, `[e2b]`, `[gce]`.

use super::settings::part;
use crate::failure::Outcome;
use hotdesk_fleet::Price;
use hotdesk_provider::{cloud, daytona, e2b, gce, kubernetes};
use std::collections::BTreeMap;

#[derive(Debug, Clone, Default)]
pub(crate) struct Elsewhere {
    pub(crate) kubernetes: kubernetes::Config,
    pub(crate) daytona: daytona::Config,
    pub(crate) e2b: e2b::Config,
    pub(crate) gce: gce::Config,
}

impl Elsewhere {
    /// Takes their tables out of a settings file.
    pub(super) fn from_tables(mut take: impl FnMut(&str) -> toml::Value) -> Outcome<Self> {
        Ok(Self {
            kubernetes: part("kubernetes.", take("kubernetes"))?,
            daytona: part("daytona.", take("daytona"))?,
            e2b: part("e2b.", take("e2b"))?,
            gce: part("gce.", take("gce"))?,
        })
    }

    /// What desks at vendors cost, unless the fleet's own settings say.
    pub(super) fn fill_prices(&self, prices: &mut BTreeMap<String, Price>) {
        let all = [("daytona", self.daytona.price), ("e2b", self.e2b.price), ("gce", self.gce.price())];
        for (name, cloud::Price { cpu_hour, memory_gib_hour, disk_gib_hour }) in all {
            prices.entry(name.into()).or_insert(Price { cpu_hour, memory_gib_hour, disk_gib_hour });
        }
    }
}
