//! The desk's token, from whoever started the machine.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

/// QEMU's `-fw_cfg name=opt/hotdesk/token,…`. Only root can read it.
const FW_CFG: &str = "/sys/firmware/qemu_fw_cfg/by_name/opt/hotdesk/token/raw";
/// On Google's clouds: the attribute `hotdesk-token` of the machine.
const METADATA: (Ipv4Addr, u16) = (Ipv4Addr::new(169, 254, 169, 254), 80);
const REQUEST: &[u8] = b"GET /computeMetadata/v1/instance/attributes/hotdesk-token HTTP/1.0\r\n\
                         Host: metadata.google.internal\r\nMetadata-Flavor: Google\r\n\r\n";
const PATIENCE: Duration = Duration::from_secs(3);
/// A token is a few dozen characters.
const LONGEST: u64 = 16 << 10;

pub(super) fn find(words: &BTreeMap<String, String>) -> Option<String> {
    let usable = |text: String| Some(text.trim().to_owned()).filter(|token| !token.is_empty());
    std::fs::read_to_string(FW_CFG)
        .ok()
        .and_then(usable)
        .or_else(|| words.get("hotdesk.token").cloned().and_then(usable))
        .or_else(|| of_metadata().and_then(usable))
}

fn of_metadata() -> Option<String> {
    let machine = std::fs::read_to_string("/sys/class/dmi/id/product_name").unwrap_or_default();
    if !machine.starts_with("Google") {
        return None;
    }
    let mut stream = TcpStream::connect_timeout(&SocketAddr::from(METADATA), PATIENCE).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    stream.write_all(REQUEST).ok()?;
    let mut answer = String::new();
    stream.take(LONGEST).read_to_string(&mut answer).ok()?;
    body(&answer)
}

fn body(answer: &str) -> Option<String> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    (head.split(' ').nth(1) == Some("200")).then(|| body.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_the_metadata_server_are_read() {
        assert_eq!(body("HTTP/1.0 200 OK\r\nA: b\r\n\r\nsecret").as_deref(), Some("secret"));
        assert_eq!(body("HTTP/1.0 404 Not Found\r\n\r\nno"), None);
        let words = BTreeMap::from([("hotdesk.token".to_owned(), "abc".to_owned())]);
        assert_eq!(find(&words).as_deref(), Some("abc"));
    }
}
