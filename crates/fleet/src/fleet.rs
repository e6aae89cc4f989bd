//! The fleet as its callers see it.

pub(crate) mod create;
mod desks;
mod open;
mod orphans;
mod snapshots;
mod wide;

pub use open::Options;
pub(crate) use open::only_one;

use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::keys::{Deed, On, may};
use crate::store::Store;
use crate::view::Entry;
use hotdesk_api::desk::{Event, State};
use hotdesk_api::fleet::Scope;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::broadcast;

/// Who asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Who {
    /// Id of the key.
    pub key: String,
    pub name: String,
    pub scope: Scope,
}

impl Who {
    /// Whether a desk of that project and id is theirs to see.
    pub fn sees(&self, project: &str, id: &str) -> bool {
        may(self, Deed::See, On::Desk { id, project }).is_ok()
    }

    fn rules(&self) -> Result<()> {
        may(self, Deed::Rule, On::Fleet)
    }
}

/// Which desks are wanted.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    pub project: Option<String>,
    pub state: Option<State>,
    pub labels: BTreeMap<String, String>,
}

/// The fleet. Cheap to clone.
#[derive(Clone)]
pub struct Fleet {
    pub(crate) engine: Arc<Engine>,
}

impl Fleet {
    /// A desk by id or by name, if they may do that with it. A desk of others does not exist for them.
    pub(crate) fn find(&self, who: &Who, id: &str, deed: Deed) -> Result<Arc<Entry>> {
        let view = &self.engine.view;
        let entry = view.get(id).or_else(|| match &who.scope {
            Scope::Admin => view.named(Some(crate::DEFAULT_PROJECT), id).or_else(|| view.named(None, id)),
            Scope::Project { project } => view.named(Some(project), id),
            Scope::Desk { desk } => view.get(desk).filter(|e| e.record().name.as_deref() == Some(id)),
        });
        let entry = entry.ok_or_else(|| Error::NotFound { what: "desk", id: id.into() })?;
        let record = entry.record();
        may(who, deed, On::Desk { id: &record.id, project: &record.project })?;
        Ok(entry)
    }

    /// The id of a desk that they may see, by its id or its name.
    pub fn id_of(&self, who: &Who, name: &str) -> Option<String> {
        self.find(who, name, Deed::See).ok().map(|entry| entry.record().id.clone())
    }

    /// Every change of every desk, as it happens. Not filtered: see [`Who::sees`].
    pub fn watch(&self) -> broadcast::Receiver<Event> {
        self.engine.events.subscribe()
    }

    /// For the records' own modules.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.engine.store
    }
}
