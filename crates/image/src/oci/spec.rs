//! The words of the OCI image specification, as far as they are written here. Maps are sorted and nothing depends on the clock,
//! so that the same image has the same digest.

use super::blob::Blob;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt::Write;

pub(super) const INDEX: &str = "application/vnd.oci.image.index.v1+json";
pub(super) const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
pub(super) const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
pub(super) const LAYER_TAR: &str = "application/vnd.oci.image.layer.v1.tar";
pub(super) const LAYER_GZIP: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
pub(super) const LAYER_ZSTD: &str = "application/vnd.oci.image.layer.v1.tar+zstd";
/// The file that makes a directory a layout, and what is in it.
pub(super) const LAYOUT_FILE: &str = "oci-layout";
pub(super) const LAYOUT: &str = r#"{"imageLayoutVersion":"1.0.0"}"#;
/// The name of an image inside a layout: the first for everybody, the second for containerd.
pub(super) const NAME: &str = "org.opencontainers.image.ref.name";
pub(super) const FULL_NAME: &str = "io.containerd.image.name";

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Descriptor {
    pub(super) media_type: String,
    pub(super) digest: String,
    pub(super) size: u64,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) annotations: BTreeMap<String, String>,
}

impl Descriptor {
    pub(super) fn of(blob: &Blob) -> Self {
        Self { media_type: blob.media_type.clone(), digest: blob.digest.clone(), size: blob.size, annotations: BTreeMap::new() }
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Manifest {
    pub(super) schema_version: u8,
    pub(super) media_type: String,
    pub(super) config: Descriptor,
    pub(super) layers: Vec<Descriptor>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) annotations: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Index {
    pub(super) schema_version: u8,
    pub(super) media_type: String,
    pub(super) manifests: Vec<Descriptor>,
}

/// The image's own description, for whoever runs it.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Config {
    pub(super) created: String,
    pub(super) architecture: String,
    pub(super) os: String,
    pub(super) config: Run,
    pub(super) rootfs: Layers,
    pub(super) history: Vec<Step>,
}

/// How it is run.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Run {
    pub(super) user: String,
    pub(super) exposed_ports: BTreeMap<String, Nothing>,
    pub(super) env: Vec<String>,
    pub(super) entrypoint: Vec<String>,
    pub(super) working_dir: String,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) stop_signal: String,
}

/// `{}`.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct Nothing {}

#[derive(Debug, Clone, Serialize)]
pub(super) struct Layers {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) diff_ids: Vec<String>,
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct Step {
    pub(super) created: String,
    pub(super) created_by: String,
}

/// What `docker load` of every version looks for in an archive.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct DockerEntry {
    pub(super) config: String,
    pub(super) repo_tags: Vec<String>,
    pub(super) layers: Vec<String>,
}

/// The architecture in the words of OCI.
pub(super) fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// `sha256:HEX` of a hash.
pub(super) fn digest(hash: &[u8]) -> String {
    hash.iter().fold(String::from("sha256:"), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

pub(super) fn digest_of(bytes: &[u8]) -> String {
    digest(&Sha256::digest(bytes))
}

/// Whether it is `sha256:` and 64 lower-case hexadecimal digits, so that it can be part of a path.
pub(super) fn is_digest(text: &str) -> bool {
    let good = |hex: &str| hex.len() == 64 && hex.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    text.strip_prefix("sha256:").is_some_and(good)
}
