//! Desks behind a vendor's edge: reached by HTTP, mostly over TLS, under a name of their own, with headers that the edge asks for.

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// A host, and what its edge wants to see on every request.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Web {
    /// Over TLS.
    pub secure: bool,
    pub host: String,
    pub port: u16,
    /// Certificates to trust besides the machine's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    /// In alphabetical order, so that equal places are equal.
    #[serde(default)]
    pub headers: Vec<(String, Hidden)>,
}

/// A value that opens something, so it is shown to nobody.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Hidden(pub String);

impl std::fmt::Debug for Hidden {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("…")
    }
}

impl Web {
    /// The place of an address such as `https://5000-abc.example:443/`; none if it is no such address.
    pub fn of(url: &str, ca: Option<PathBuf>, headers: impl IntoIterator<Item = (String, String)>) -> Option<Self> {
        let url: http::Uri = url.parse().ok()?;
        let secure = match url.scheme_str()? {
            "https" => true,
            "http" => false,
            _ => return None,
        };
        let port = url.port_u16().unwrap_or(if secure { 443 } else { 80 });
        let mut headers: Vec<_> = headers.into_iter().map(|(name, value)| (name.to_ascii_lowercase(), Hidden(value))).collect();
        headers.sort_by(|a, b| a.0.cmp(&b.0));
        Some(Self { secure, host: url.host()?.to_owned(), port, ca, headers })
    }

    /// As it stands in `Host`.
    pub fn authority(&self) -> String {
        match (self.secure, self.port) {
            (true, 443) | (false, 80) => self.host.clone(),
            (_, port) => format!("{}:{port}", self.host),
        }
    }

    pub(super) async fn connect(&self) -> io::Result<Connection> {
        let host = self.host.trim_matches(['[', ']']);
        let stream = match is_local_name(host) {
            true => TcpStream::connect(("127.0.0.1", self.port)).await?,
            false => TcpStream::connect((host, self.port)).await?,
        };
        stream.set_nodelay(true)?;
        if !self.secure {
            return Ok(Connection::Plain(stream));
        }
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        let connector = TlsConnector::from(tls_config(self.ca.as_deref())?);
        Ok(Connection::Secure(Box::new(connector.connect(name, stream).await?)))
    }
}

pub(super) enum Connection {
    Plain(TcpStream),
    Secure(Box<TlsStream<TcpStream>>),
}

/// `localhost` and all names below it are this machine, whatever a name server says (RFC 6761).
fn is_local_name(host: &str) -> bool {
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    host == "localhost" || host.ends_with(".localhost")
}

pub(crate) fn is_loopback(host: &str) -> bool {
    let address = host.trim_matches(['[', ']']).parse::<std::net::IpAddr>();
    is_local_name(host) || address.is_ok_and(|address| address.is_loopback())
}

/// TLS with the machine's certificates and those of a file. Made once each: connections of one are resumed by the next.
pub(crate) fn tls_config(ca: Option<&Path>) -> io::Result<Arc<ClientConfig>> {
    static MADE: Mutex<Option<HashMap<Option<PathBuf>, Arc<ClientConfig>>>> = Mutex::new(None);
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    let made = made.get_or_insert_default();
    let key = ca.map(Path::to_owned);
    if let Some(config) = made.get(&key) {
        return Ok(Arc::clone(config));
    }
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if let Some(file) = ca {
        let wrong =
            |e: &dyn std::fmt::Display| io::Error::other(format!("the certificates in {} can't be used: {e}", file.display()));
        for certificate in CertificateDer::pem_file_iter(file).map_err(|e| wrong(&e))? {
            roots.add(certificate.map_err(|e| wrong(&e))?).map_err(|e| wrong(&e))?;
        }
    }
    if roots.is_empty() {
        return Err(io::Error::other("this machine trusts no certificate at all; apt-get install ca-certificates"));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let config = Arc::new(config);
    made.insert(key, Arc::clone(&config));
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_taken_apart() {
        let web = Web::of("https://5000-a.b.example/", None, [("X-Token".into(), "secret".into())]).unwrap();
        assert_eq!((web.secure, web.port, web.authority().as_str()), (true, 443, "5000-a.b.example"));
        assert_eq!(web.headers, [("x-token".into(), Hidden("secret".into()))]);
        assert!(!format!("{web:?}").contains("secret"), "{web:?}");
        let web = Web::of("http://127.0.0.1:3002", None, []).unwrap();
        assert_eq!((web.secure, web.authority().as_str()), (false, "127.0.0.1:3002"));
        assert!(Web::of("ftp://a", None, []).is_none() && Web::of("a", None, []).is_none());
    }

    #[test]
    fn local_names_are_local() {
        assert!(is_loopback("localhost") && is_loopback("a.b.LOCALHOST") && is_loopback("127.0.0.9") && is_loopback("[::1]"));
        assert!(!is_loopback("notlocalhost") && !is_loopback("10.0.0.1"));
    }
}
