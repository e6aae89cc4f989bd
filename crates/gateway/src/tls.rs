//! TLS: the certificate, and a new one without a restart.

use crate::config::TlsFiles;
use crate::error::{Error, Result};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::SystemTime;
use tokio_rustls::TlsAcceptor;

/// The gateway's certificate. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Tls {
    files: TlsFiles,
    current: Arc<Current>,
}

#[derive(Debug)]
struct Current {
    key: RwLock<Arc<CertifiedKey>>,
    /// Of the files when they were read.
    stamp: RwLock<Stamp>,
}

type Stamp = [Option<SystemTime>; 2];

impl Tls {
    pub(crate) fn load(files: &TlsFiles) -> Result<Self> {
        let stamp = stamp(files);
        let key = read(files)?;
        Ok(Self { files: files.clone(), current: Arc::new(Current { key: RwLock::new(key), stamp: RwLock::new(stamp) }) })
    }

    pub(crate) fn acceptor(&self) -> Result<TlsAcceptor> {
        let failed = |e: rustls::Error| Error::Tls { file: self.files.cert.clone(), reason: e.to_string() };
        let mut config = rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(failed)?
            .with_no_client_auth()
            .with_cert_resolver(self.current.clone());
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(TlsAcceptor::from(Arc::new(config)))
    }

    /// Reads the files again if they changed, or always with `force`. A broken new certificate leaves the old one.
    pub(crate) fn reload(&self, force: bool) {
        let stamp = stamp(&self.files);
        let mut known = self.current.stamp.write().unwrap_or_else(PoisonError::into_inner);
        if *known == stamp && !force {
            return;
        }
        *known = stamp;
        match read(&self.files) {
            Ok(key) => {
                *self.current.key.write().unwrap_or_else(PoisonError::into_inner) = key;
                tracing::info!(file = %self.files.cert.display(), "the certificate was read again");
            }
            // Both files are rarely replaced in one moment; the next look sees the second.
            Err(e) => tracing::warn!(error = %e, "the old certificate stays in use"),
        }
    }
}

impl ResolvesServerCert for Current {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.key.read().unwrap_or_else(PoisonError::into_inner).clone())
    }
}

fn stamp(files: &TlsFiles) -> Stamp {
    let changed = |path: &Path| std::fs::metadata(path).and_then(|m| m.modified()).ok();
    [changed(&files.cert), changed(&files.key)]
}

fn read(files: &TlsFiles) -> Result<Arc<CertifiedKey>> {
    let failed = |file: &Path, reason: String| Error::Tls { file: file.to_owned(), reason };
    let chain = CertificateDer::pem_file_iter(&files.cert)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|e| failed(&files.cert, e.to_string()))?;
    if chain.is_empty() {
        return Err(failed(&files.cert, "there is no certificate in it".into()));
    }
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|e| failed(&files.key, e.to_string()))?;
    let key = CertifiedKey::from_der(chain, key, &rustls::crypto::ring::default_provider())
        .map_err(|e| failed(&files.key, e.to_string()))?;
    Ok(Arc::new(key))
}
