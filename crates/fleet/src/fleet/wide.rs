//! What concerns the whole fleet: events, pools, keys, money, numbers.

use super::desks::may_see;
use super::{Fleet, Who};
use crate::error::{Error, Result};
use crate::limits::request;
use crate::telemetry::word;
use hotdesk_api::desk::Event;
use hotdesk_api::fleet::{FleetInfo, Pool, PoolSpec, ProviderInfo, Scope};

/// Events read at once when others' are left out.
const PAGE: u32 = 500;

impl Fleet {
    /// What happened after an event's number, oldest first.
    pub async fn events(&self, who: &Who, after: i64, desk: Option<&str>, limit: u32) -> Result<Vec<Event>> {
        let desk = match (&who.scope, desk) {
            (Scope::Desk { desk }, None) => Some(desk.clone()),
            (_, Some(desk)) => Some(self.find(who, desk).map_or_else(|_| desk.to_owned(), |e| e.id.clone())),
            (_, None) => None,
        };
        let mut found = Vec::new();
        let mut after = after;
        loop {
            let page = self.engine.store.events(after, desk.as_deref(), PAGE.max(limit)).await?;
            let Some(last) = page.last().map(|e| e.number) else { return Ok(found) };
            found.extend(page.into_iter().filter(|e| may_see(who, e)).take(limit as usize - found.len()));
            if found.len() == limit as usize {
                return Ok(found);
            }
            after = last;
        }
    }

    pub async fn pools(&self, who: &Who) -> Result<Vec<Pool>> {
        who.admin("looking at pools")?;
        Ok(self.engine.pool_list())
    }

    pub async fn set_pool(&self, who: &Who, spec: PoolSpec) -> Result<Pool> {
        who.admin("setting a pool")?;
        request::pool(&spec)?;
        let provider = self.engine.providers.choose(spec.provider.as_deref())?;
        if self.engine.providers.away(provider.name()).is_none() {
            let (progress, _) = hotdesk_provider::Progress::new();
            provider.prepare(&spec.template, &progress).await?;
        }
        let template = spec.template.clone();
        self.engine.store.put_pool(&spec).await?;
        self.engine.pools.set(self.engine.store.pools().await?);
        let reason = format!("the pool of {template} keeps {} to {} desks ready", spec.min, spec.max);
        self.engine.tell("pool", None, None, reason, &who.name).await;
        let pool = self.engine.pool_list().into_iter().find(|p| p.spec.template == template);
        pool.ok_or_else(|| Error::NotFound { what: "pool", id: template })
    }

    pub async fn remove_pool(&self, who: &Who, template: &str) -> Result<()> {
        who.admin("removing a pool")?;
        if !self.engine.pool_list().iter().any(|p| p.spec.template == template) {
            return Err(Error::NotFound { what: "pool", id: template.into() });
        }
        self.engine.store.remove_pool(template).await?;
        self.engine.pools.set(self.engine.store.pools().await?);
        self.engine.tell("pool", None, None, format!("the pool of {template} was removed"), &who.name).await;
        Ok(())
    }

    pub async fn info(&self) -> Result<FleetInfo> {
        let engine = &self.engine;
        let mut info = FleetInfo { version: env!("CARGO_PKG_VERSION").into(), ..FleetInfo::default() };
        engine.view.for_each(|_, r| *info.desks.entry(word(r.state).into()).or_default() += 1);
        info.max_desks = engine.config.max_desks;
        let machine = engine.admission.machine.look(&engine.config.data);
        info.cpus = machine.cpus;
        info.memory_mib = machine.memory_mib;
        (info.cpus_promised, info.memory_promised_mib) = engine.promised();
        info.default_policy = engine.config.policy;
        for (name, provider) in engine.providers.iter() {
            let away = engine.providers.away(name);
            info.providers.push(ProviderInfo {
                name: name.clone(),
                ready: away.is_none(),
                reason: away.unwrap_or_default(),
                capabilities: provider.capabilities().await,
            });
        }
        Ok(info)
    }
}
