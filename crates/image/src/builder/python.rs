//! Packages of the Python index: fetched by the host's own `pip`, with whatever settings reach the index from here, and installed in
//! the tree without a network.

use super::Job;
use crate::{Error, Result};
use std::path::Path;
use std::process::Stdio;
use tokio::process::Command;

/// So much of what pip complained about is told.
const LAST_LINES: usize = 6;

/// Fetches what is not kept yet and lays all of it where the build copies it from. The names of the files.
pub(super) async fn fetch(job: &Job<'_>, stage: &(dyn Fn(&str) + Send + Sync)) -> Result<Vec<String>> {
    let wanted = &job.template.python;
    if wanted.is_empty() {
        return Ok(Vec::new());
    }
    let place = job.work.join("files/python");
    for directory in [job.wheels, &place] {
        std::fs::create_dir_all(directory).map_err(|e| Error::Failed(format!("{}: {e}", directory.display())))?;
    }
    let mut names = Vec::new();
    for package in wanted {
        if kept(job.wheels, package).is_none() {
            stage(&format!("fetching {package}"));
            download(job.wheels, package, &job.template.name).await?;
        }
        let name = kept(job.wheels, package).ok_or_else(|| Error::Failed(format!("pip did not fetch {package}")))?;
        let (from, to) = (job.wheels.join(&name), place.join(&name));
        std::fs::copy(&from, &to).map_err(|e| Error::Failed(format!("{}: {e}", to.display())))?;
        names.push(name);
    }
    Ok(names)
}

async fn download(to: &Path, package: &str, template: &str) -> Result<()> {
    let mut command = Command::new("python3");
    command.args(["-m", "pip", "download", "--quiet", "--no-deps", "--dest"]).arg(to).arg(package);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
    let missing = "Python packages are fetched by pip, which is not installed; `apt-get install python3-pip` installs it";
    let output = command.output().await.map_err(|_| Error::Failed(missing.into()))?;
    let complained = String::from_utf8_lossy(&output.stderr);
    if output.status.success() {
        return Ok(());
    }
    if complained.contains("No module named pip") {
        return Err(Error::Failed(missing.into()));
    }
    let lines: Vec<&str> = complained.lines().filter(|line| !line.trim().is_empty()).collect();
    let last = lines[lines.len().saturating_sub(LAST_LINES)..].join("; ");
    Err(Error::Failed(format!("template `{template}`: {package} can't be fetched: {last}")))
}

/// The file of a package. Names of files and of packages differ in case and in their dashes.
fn kept(directory: &Path, package: &str) -> Option<String> {
    let same = |text: &str| text.to_lowercase().replace(['_', '.'], "-");
    let begin = same(&package.replacen("==", "-", 1));
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).find(|name| {
        let rest = same(name);
        rest.strip_prefix(&begin).is_some_and(|rest| rest.starts_with("-py") || rest == "-tar-gz" || rest == "-zip")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_files_are_found_however_they_are_spelt() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["PyAutoGUI-0.9.54.tar.gz", "python3_xlib-0.15-py3-none-any.whl", "pytweening-1.0.70.tar.gz"] {
            std::fs::write(directory.path().join(name), "").unwrap();
        }
        let found = |package: &str| kept(directory.path(), package);
        assert_eq!(found("pyautogui==0.9.54").as_deref(), Some("PyAutoGUI-0.9.54.tar.gz"));
        assert_eq!(found("python3-xlib==0.15").as_deref(), Some("python3_xlib-0.15-py3-none-any.whl"));
        assert_eq!(found("pytweening==1.0.7"), None);
        assert_eq!(found("pyautogui==0.9.5"), None);
    }
}
