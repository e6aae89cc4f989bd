//! `hotdesk backup` and `hotdesk restore`: copies of the fleet's database.

use super::serve;
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::out;
use crate::{places, reach};
use clap::Args;
use hotdesk_fleet::{Config, Error, store};
use std::path::PathBuf;

/// Which database.
#[derive(Debug, Args)]
pub(crate) struct Which {
    /// Where the fleet keeps its things [default: /var/lib/hotdesk, or .local/share/hotdesk in the user's home]
    #[arg(long, env = "HOTDESK_DATA", hide_env_values = true, value_name = "DIR")]
    data: Option<PathBuf>,

    /// The settings file [default: hotdesk.toml in the data directory, if it is there]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct BackupArgs {
    /// Where the copy goes; it must not be there yet
    file: PathBuf,

    #[command(flatten)]
    which: Which,
}

#[derive(Debug, Args)]
pub(crate) struct RestoreArgs {
    /// The copy
    file: PathBuf,

    #[command(flatten)]
    which: Which,
}

impl Which {
    fn config(&self) -> Outcome<Config> {
        serve::fleet_config(self.config.as_deref(), &places::data(self.data.as_deref()))
    }
}

pub(crate) fn backup(args: BackupArgs) -> Exit {
    reach::run(async move {
        let bytes = store::backup(&args.which.config()?, &args.file).await.map_err(failure)?;
        Ok(out::line(&format!("{}  {bytes} bytes", args.file.display())))
    })
}

pub(crate) fn restore(args: RestoreArgs) -> Exit {
    reach::run(async move {
        let config = args.which.config()?;
        let fleet = std::fs::read_to_string(config.data.join("fleet-id")).ok();
        let kept = store::restore(&config, &args.file, fleet.as_deref().map(str::trim)).await.map_err(failure)?;
        if let Some(kept) = kept {
            out::line(&format!("the database of before is kept as {}", kept.display()));
        }
        out::line("put back; start the fleet, then see what the copy does not know: hotdesk orphan ls");
        Ok(Exit::Success)
    })
}

fn failure(error: Error) -> Failure {
    let exit = match &error {
        Error::Conflict(_) => Exit::Taken,
        Error::Invalid(_) => Exit::Usage,
        Error::NotFound { .. } => Exit::NotFound,
        _ => Exit::Failure,
    };
    Failure::new(exit, error.to_string())
}
