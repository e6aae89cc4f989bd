//! Files of a desk.
//!
//! Paths in requests are absolute, or start with `~/`, or are relative to the desk's home.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::{IntoParams, ToSchema};

/// What a name in a directory is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum FileKind {
    File,
    Directory,
    Symlink,
    Fifo,
    Socket,
    BlockDevice,
    CharDevice,
}

/// A file, a directory or a link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FileInfo {
    /// The absolute path. Bytes that are not UTF-8 are shown as `�`.
    pub path: String,
    /// The last part of the path.
    pub name: String,
    pub kind: FileKind,
    /// Bytes.
    pub size: u64,
    /// Permissions, octal: `0644`.
    pub mode: String,
    /// The number of the owner.
    pub user: u32,
    /// The number of the owning group.
    pub group: u32,
    /// When its content changed last, in milliseconds since 1970.
    pub modified_ms: i64,
    /// Where a symlink points, as written in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// The name of the owner, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_name: Option<String>,
    /// The name of the owning group, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group_name: Option<String>,
    /// Where a symlink leads in the end, if something is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<LinkEnd>,
    /// What clients noted about it: extended attributes `user.e2b.*`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub notes: BTreeMap<String, String>,
}

/// What a symlink leads to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LinkEnd {
    pub path: String,
    pub kind: FileKind,
}

/// Something to note about a file.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NoteFile {
    pub path: String,
    /// All notes of the file from now on; names are made small.
    pub notes: BTreeMap<String, String>,
}

/// What is in a directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FileList {
    /// The directory's absolute path.
    pub path: String,
    /// Sorted by path; a directory comes before what is in it.
    pub entries: Vec<FileInfo>,
    /// True if there is more than the limit allows to list.
    pub truncated: bool,
    /// Directories below that can't be read, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<Unreadable>,
}

/// A directory that can't be listed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Unreadable {
    pub path: String,
    pub reason: String,
}

/// Which file.
#[derive(Debug, Clone, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct FilePath {
    /// Absolute, `~/…`, or relative to the desk's home.
    pub path: String,
}

/// Which file to describe.
#[derive(Debug, Clone, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct StatFile {
    /// Absolute, `~/…`, or relative to the desk's home.
    pub path: String,
    /// Whether a symlink is followed.
    #[serde(default)]
    #[param(default = false)]
    pub follow: bool,
}

/// What to list.
#[derive(Debug, Clone, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListFiles {
    /// Absolute, `~/…`, or relative to the desk's home, which is the default.
    #[serde(default = "home")]
    pub path: String,
    /// How many levels of directories: 1 lists the directory alone.
    #[serde(default = "one")]
    #[param(default = 1, minimum = 1, maximum = 64)]
    pub depth: u32,
    /// Whether names that start with a dot are listed.
    #[serde(default = "yes")]
    #[param(default = true)]
    pub hidden: bool,
}

/// How to write a file.
#[derive(Debug, Clone, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct WriteFile {
    /// Absolute, `~/…`, or relative to the desk's home.
    pub path: String,
    /// Permissions, octal: `0644`. Default: those of the file that is replaced, else `0644`.
    #[serde(default)]
    pub mode: Option<String>,
    /// Whether missing parent directories are made.
    #[serde(default)]
    #[param(default = false)]
    pub make_parents: bool,
}

/// A file as it was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Written {
    /// The absolute path.
    pub path: String,
    /// Bytes.
    pub size: u64,
    /// True if there was no file of this name before.
    pub created: bool,
}

/// What to delete.
#[derive(Debug, Clone, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct DeleteFile {
    /// Absolute, `~/…`, or relative to the desk's home. A symlink is deleted itself.
    pub path: String,
    /// Whether a directory is deleted with all that is in it.
    #[serde(default)]
    #[param(default = false)]
    pub recursive: bool,
}

/// A directory to make.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MakeDirectory {
    pub path: String,
    /// Make missing parents too, and be content if the directory exists.
    #[serde(default)]
    pub make_parents: bool,
    /// Permissions, octal: `0755`.
    #[serde(default)]
    pub mode: Option<String>,
}

/// What to move or copy, and where.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MoveFile {
    pub from: String,
    /// The new path itself, not the directory to put it in.
    pub to: String,
    /// Replace a file that is there.
    #[serde(default)]
    pub overwrite: bool,
    /// Make missing parents of `to`.
    #[serde(default)]
    pub make_parents: bool,
}

/// New permissions.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetMode {
    pub path: String,
    /// Octal: `0644`.
    pub mode: String,
}

/// Which lines to look for.
#[derive(Debug, Clone, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct FindText {
    /// A file, or a directory whose files are all looked through.
    pub path: String,
    /// Plain text.
    pub text: String,
}

/// A line that holds the text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FoundLine {
    pub path: String,
    /// From 1.
    pub line: u64,
    /// The line, cut after 4096 bytes.
    pub text: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FoundLines {
    pub lines: Vec<FoundLine>,
    /// True if there are more.
    pub truncated: bool,
}

/// Which names to look for.
#[derive(Debug, Clone, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct FindNames {
    pub path: String,
    /// Of `*`, `?` and `[…]`; compared with the name, or with the path below the directory if it has slashes.
    pub pattern: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FoundNames {
    /// Absolute paths.
    pub paths: Vec<String>,
    /// True if there are more.
    pub truncated: bool,
}

/// Text to replace.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReplaceText {
    pub paths: Vec<String>,
    /// Plain text.
    pub text: String,
    pub by: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Replaced {
    pub files: Vec<ReplacedFile>,
}

/// What became of one file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReplacedFile {
    pub path: String,
    /// How often the text was replaced.
    pub count: u64,
    /// Why it was not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// What was unpacked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Unpacked {
    /// The directory's absolute path.
    pub path: String,
    /// How many files, directories and links.
    pub entries: u64,
    /// Bytes of the files.
    pub bytes: u64,
}

/// What to watch.
#[derive(Debug, Clone, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct WatchFiles {
    /// A directory or a file.
    pub path: String,
    /// Whether directories below are watched too.
    #[serde(default)]
    #[param(default = false)]
    pub recursive: bool,
    /// Whether each write is told, and not only that the writer is done.
    #[serde(default)]
    #[param(default = false)]
    pub every_write: bool,
}

/// Something happened to a watched file. The stream's first event is `watching`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum WatchEvent {
    /// Changes from now on are told.
    Watching {
        path: String,
    },
    Created {
        path: String,
    },
    /// Its content was written.
    Modified {
        path: String,
    },
    /// Its permissions, owner or times changed.
    Attributes {
        path: String,
    },
    Removed {
        path: String,
    },
    Renamed {
        from: String,
        to: String,
    },
    /// Changes came faster than they were read, and some were lost: list the directory again.
    Overflow,
    /// The watch ended.
    Failed {
        reason: String,
    },
}

fn home() -> String {
    "~".into()
}

fn one() -> u32 {
    1
}

fn yes() -> bool {
    true
}
