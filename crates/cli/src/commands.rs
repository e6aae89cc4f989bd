//! One module per command.

pub(crate) mod audit;
pub(crate) mod budget;
pub(crate) mod costs;
pub(crate) mod cp;
pub(crate) mod env;
pub(crate) mod events;
pub(crate) mod exec;
pub(crate) mod extend;
pub(crate) mod fork;
pub(crate) mod forward;
pub(crate) mod key;
pub(crate) mod logs;
pub(crate) mod ls;
pub(crate) mod new;
pub(crate) mod open;
pub(crate) mod pool;
pub(crate) mod provider;
pub(crate) mod set;
pub(crate) mod sh;
pub(crate) mod shot;
pub(crate) mod snapshot;
pub(crate) mod steps;
pub(crate) mod top;
