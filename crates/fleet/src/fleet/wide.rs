//! What concerns the whole fleet: events, pools, keys, money, numbers.

use super::desks::may_see;
use super::{Fleet, Who};
use crate::error::{Error, Result};
use crate::keys::{Deed, On, may};
use crate::limits::request;
use crate::telemetry::word;
use hotdesk_api::desk::Event;
use hotdesk_api::fleet::{Budget, Costs, FleetInfo, Key, MadeKey, NewKey, Pool, PoolSpec, ProviderInfo, Scope};
use std::path::PathBuf;

impl Fleet {
    /// What happened after an event's number, oldest first.
    pub async fn events(&self, who: &Who, after: i64, desk: Option<&str>, limit: u32) -> Result<Vec<Event>> {
        let desk = match (&who.scope, desk) {
            (Scope::Desk { desk }, None) => Some(desk.clone()),
            (_, Some(desk)) => Some(self.find(who, desk, Deed::See).map_or_else(|_| desk.to_owned(), |e| e.id.clone())),
            (_, None) => None,
        };
        let store = &self.engine.store;
        let found = match &who.scope {
            Scope::Project { project } => store.events_of(project, after, desk.as_deref(), limit).await?,
            Scope::Admin | Scope::Desk { .. } => store.events(after, desk.as_deref(), limit).await?,
        };
        Ok(found.into_iter().filter(|event| may_see(who, event)).collect())
    }

    pub async fn pools(&self, who: &Who) -> Result<Vec<Pool>> {
        who.rules()?;
        Ok(self.engine.pool_list())
    }

    pub async fn set_pool(&self, who: &Who, spec: PoolSpec) -> Result<Pool> {
        who.rules()?;
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
        pool.ok_or(Error::NotFound { what: "pool", id: template })
    }

    pub async fn remove_pool(&self, who: &Who, template: &str) -> Result<()> {
        who.rules()?;
        if !self.engine.pool_list().iter().any(|p| p.spec.template == template) {
            return Err(Error::NotFound { what: "pool", id: template.into() });
        }
        self.engine.store.remove_pool(template).await?;
        self.engine.pools.set(self.engine.store.pools().await?);
        self.engine.tell("pool", None, None, format!("the pool of {template} was removed"), &who.name).await;
        Ok(())
    }

    /// The key that a secret belongs to, if it is good. Constant time; does not touch the store for a key that is known.
    pub async fn who(&self, secret: &str) -> Result<Who> {
        self.engine.keys.who(secret).await
    }

    /// Makes sure that there is a key of the whole fleet, and says in which file of the data directory its secret is.
    pub async fn admin_key(&self) -> Result<PathBuf> {
        self.engine.keys.admin(&self.engine.config.data).await
    }

    /// Keys of a project and of the fleet are made by admins, those of one desk by whoever rules that desk.
    pub async fn make_key(&self, who: &Who, new: NewKey) -> Result<MadeKey> {
        self.may_grant(who, &new.scope)?;
        let made = self.engine.keys.make(new).await?;
        self.engine.tell("key", None, None, format!("the key {} ({}) was made", made.key.id, made.key.name), &who.name).await;
        Ok(made)
    }

    pub async fn keys(&self, who: &Who) -> Result<Vec<Key>> {
        let keys = self.engine.keys.list().await?;
        let theirs = |key: &Key| who.scope == Scope::Admin || self.may_grant(who, &key.scope).is_ok();
        Ok(keys.into_iter().filter(theirs).collect())
    }

    pub async fn rotate_key(&self, who: &Who, id: &str) -> Result<MadeKey> {
        self.grantable(who, id).await?;
        let made = self.engine.keys.rotate(id).await?;
        self.engine.tell("key", None, None, format!("the key {id} has a new secret"), &who.name).await;
        Ok(made)
    }

    pub async fn revoke_key(&self, who: &Who, id: &str) -> Result<()> {
        self.grantable(who, id).await?;
        self.engine.keys.revoke(id).await?;
        self.engine.tell("key", None, None, format!("the key {id} was revoked"), &who.name).await;
        Ok(())
    }

    fn may_grant(&self, who: &Who, scope: &Scope) -> Result<()> {
        match scope {
            Scope::Desk { desk } => self.find(who, desk, Deed::Grant).map(drop),
            _ => who.rules(),
        }
    }

    /// A key that is not theirs does not exist for them.
    async fn grantable(&self, who: &Who, id: &str) -> Result<()> {
        let key = self.engine.keys.key(id).await?;
        match self.may_grant(who, &key.scope) {
            Err(_) if who.scope == Scope::Admin => Ok(()),
            Err(_) => Err(Error::NotFound { what: "key", id: id.into() }),
            Ok(()) => Ok(()),
        }
    }

    /// What was spent: by the project of the key, or by all.
    pub async fn costs(&self, who: &Who) -> Result<Costs> {
        let project = match &who.scope {
            Scope::Admin => None,
            Scope::Project { project } => Some(project.as_str()),
            Scope::Desk { .. } => return Err(Error::Denied("this key is for one desk; that desk says what it cost".into())),
        };
        let live: Vec<_> = self.engine.view.all().iter().map(|e| e.record()).collect();
        self.engine.money.costs(project, live.iter().map(AsRef::as_ref), self.engine.clock.now_ms()).await
    }

    pub async fn budgets(&self, who: &Who) -> Result<Vec<Budget>> {
        let budgets = self.engine.store.budgets().await?;
        Ok(budgets.into_iter().filter(|b| may(who, Deed::See, On::Project(&b.project)).is_ok()).collect())
    }

    /// A budget without limits is removed.
    pub async fn set_budget(&self, who: &Who, budget: Budget) -> Result<()> {
        who.rules()?;
        let project = budget.project.clone();
        self.engine.money.set_budget(&budget).await?;
        self.engine.tell("budget", None, Some(&project), "the budget was changed", &who.name).await;
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
