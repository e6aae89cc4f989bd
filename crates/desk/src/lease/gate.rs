//! The gate: every engine that acts sends its turns through it.

use super::{Asker, Lease, Pass};
use crate::error::Result;
use crate::trace::Tracer;
use hotdesk_api::trace::Deed;

/// Lets the driver's turns through, refuses all others, and has both recorded. Cheap to clone; the default lets
/// everything through and tells nobody.
#[derive(Clone, Default)]
pub struct Gate {
    lease: Lease,
    tracer: Option<Tracer>,
}

impl Gate {
    pub fn new(lease: Lease, tracer: Tracer) -> Self {
        Self { lease, tracer: Some(tracer) }
    }

    /// Whether somebody wants to know what turns are about.
    pub(crate) fn records(&self) -> bool {
        self.tracer.as_ref().is_some_and(Tracer::is_recording)
    }

    /// One turn of whoever asks. `deeds` tells what it is about, if somebody wants to know.
    pub(crate) async fn turn<T, F>(&self, deeds: impl FnOnce() -> Vec<Deed>, work: impl FnOnce(Pass) -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        let asker = Asker::now();
        let mut pass = self.lease.pass(&asker);
        let turn = match &self.tracer {
            Some(tracer) => tracer.begin(&asker, pass.as_ref().ok(), deeds).await,
            None => None,
        };
        if let (Ok(pass), Some(turn)) = (&mut pass, &turn) {
            pass.scribe = Some(turn.scribe.clone());
        }
        let result = match pass {
            Ok(pass) => work(pass).await,
            Err(refused) => Err(refused),
        };
        if let Some(turn) = turn {
            turn.end(&result);
        }
        result
    }
}
