//! TLS, HTTP/2 and a new certificate.

use super::*;
use crate::TlsFiles;
use std::path::Path;

fn certificate(directory: &Path) -> TlsFiles {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    let files = TlsFiles { cert: directory.join("cert.pem"), key: directory.join("key.pem") };
    std::fs::write(&files.key, made.signing_key.serialize_pem()).unwrap();
    std::fs::write(&files.cert, made.cert.pem()).unwrap();
    files
}

#[tokio::test]
async fn tls_serves_both_versions_of_http() {
    let directory = tempfile::tempdir().unwrap();
    let world = World::with(Config { tls: Some(certificate(directory.path())), ..Config::default() }).await;
    assert!(world.url.starts_with("https://"));
    let (desk, _) = world.desk().await;
    let response = world.get(&format!("/v1/desks/{}/screenshot", desk.id)).await;
    assert_eq!(response.version(), reqwest::Version::HTTP_2);
    assert_eq!(response.bytes().await.unwrap().len(), 300 << 10);
    let old = reqwest::Client::builder().danger_accept_invalid_certs(true).http1_only().build().unwrap();
    let answer =
        old.post(format!("{}/v1/desks/{}/x", world.url, desk.id)).bearer_auth(&world.admin).body("hi").send().await.unwrap();
    assert_eq!(answer.version(), reqwest::Version::HTTP_11);
    let seen: Value = answer.json().await.unwrap();
    assert_eq!(seen["headers"]["x-forwarded-proto"], "https");
    let plain = world.url.replace("https", "http");
    assert!(world.client.get(format!("{plain}/health")).send().await.is_err(), "no plain HTTP on the same port");
    world.end().await;
}

#[tokio::test]
async fn a_new_certificate_is_taken_and_a_broken_one_is_not() {
    let directory = tempfile::tempdir().unwrap();
    let files = certificate(directory.path());
    let tls = crate::tls::Tls::load(&files).unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let acceptor = tls.acceptor().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let _ = acceptor.accept(stream).await;
            });
        }
    });
    let shown = async || {
        let config = rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Anything))
            .with_no_client_auth();
        let stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let name = rustls::pki_types::ServerName::try_from("localhost").unwrap();
        let stream = tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap();
        stream.get_ref().1.peer_certificates().unwrap()[0].to_vec()
    };
    let first = shown().await;
    tls.reload(false);
    assert_eq!(shown().await, first, "nothing changed");
    certificate(directory.path());
    tls.reload(true);
    let second = shown().await;
    assert_ne!(second, first);
    std::fs::write(&files.cert, "nonsense").unwrap();
    tls.reload(true);
    assert_eq!(shown().await, second, "the old one stays");
    let broken = crate::tls::Tls::load(&files).unwrap_err().to_string();
    assert!(broken.contains("cert.pem"), "{broken}");
}

#[derive(Debug)]
struct Anything;

impl rustls::client::danger::ServerCertVerifier for Anything {
    fn verify_server_cert(
        &self,
        _: &rustls::pki_types::CertificateDer<'_>,
        _: &[rustls::pki_types::CertificateDer<'_>],
        _: &rustls::pki_types::ServerName<'_>,
        _: &[u8],
        _: rustls::pki_types::UnixTime,
    ) -> Result<rustls::client::danger::ServerCertVerified, rustls::Error> {
        Ok(rustls::client::danger::ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &rustls::pki_types::CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &rustls::pki_types::CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        rustls::crypto::ring::default_provider().signature_verification_algorithms.supported_schemes()
    }
}
