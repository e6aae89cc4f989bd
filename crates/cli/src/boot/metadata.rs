//! What Google's machines are told at their start: attributes on a server that only the machine reaches.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// Google's own address of it; no name has to be looked up.
const SERVER: (Ipv4Addr, u16) = (Ipv4Addr::new(169, 254, 169, 254), 80);
/// One answer is there in milliseconds.
const PATIENCE: Duration = Duration::from_secs(3);
/// The network may be a moment late. After that the machine goes on without.
const WAIT: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(250);
/// Google's limit for a value, and the head of the answer.
const LONGEST: u64 = (256 << 10) + (16 << 10);

/// An attribute of this machine; none if it has none, or is no machine of Google's.
pub(super) fn attribute(name: &str) -> Option<String> {
    let machine = std::fs::read_to_string("/sys/class/dmi/id/product_name").unwrap_or_default();
    if !machine.starts_with("Google") {
        return None;
    }
    ask(SocketAddr::from(SERVER), name, WAIT)
}

/// Asks until there is an answer, or no time left.
fn ask(server: SocketAddr, name: &str, wait: Duration) -> Option<String> {
    let begun = Instant::now();
    loop {
        match ask_once(server, name).as_deref().and_then(read) {
            Some(Answer::Value(value)) => return Some(value),
            Some(Answer::Nothing) => return None,
            Some(Answer::Later) | None if begun.elapsed() < wait => std::thread::sleep(PAUSE),
            _ => return None,
        }
    }
}

fn ask_once(server: SocketAddr, name: &str) -> Option<String> {
    let mut stream = TcpStream::connect_timeout(&server, PATIENCE).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    stream.set_write_timeout(Some(PATIENCE)).ok()?;
    let request = format!(
        "GET /computeMetadata/v1/instance/attributes/{name} HTTP/1.0\r\n\
         Host: metadata.google.internal\r\nMetadata-Flavor: Google\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.take(LONGEST).read_to_string(&mut answer).ok()?;
    Some(answer)
}

#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Value(String),
    /// There is no such attribute.
    Nothing,
    /// The server is there and can't answer yet.
    Later,
}

/// Reads an answer, of Google's server and of nobody else: it says so in its head.
fn read(answer: &str) -> Option<Answer> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let genuine = head.lines().any(|line| line.to_ascii_lowercase().replace(' ', "") == "metadata-flavor:google");
    match head.split(' ').nth(1)? {
        "200" if genuine => Some(Answer::Value(body.to_owned())),
        "404" if genuine => Some(Answer::Nothing),
        _ => Some(Answer::Later),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn answers_of_the_metadata_server_are_read() {
        let answer = |status: &str| read(&format!("HTTP/1.0 {status}\r\nMetadata-Flavor: Google\r\n\r\nsecret"));
        assert_eq!(answer("200 OK"), Some(Answer::Value("secret".into())));
        assert_eq!(answer("404 Not Found"), Some(Answer::Nothing));
        assert_eq!(answer("503 Service Unavailable"), Some(Answer::Later));
        assert_eq!(read("HTTP/1.0 200 OK\r\n\r\nfrom somebody else"), Some(Answer::Later));
        assert_eq!(read("HTTP/1.0 200 OK"), None);
    }

    #[test]
    fn it_is_asked_again_until_it_answers() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = listener.local_addr().unwrap();
        let answers = std::thread::spawn(move || {
            let mut asked = Vec::new();
            for answer in ["HTTP/1.0 503 No\r\n\r\n", "HTTP/1.0 200 OK\r\nMetadata-Flavor: Google\r\n\r\nsize = \"800x600\"\n"] {
                let (mut stream, _) = listener.accept().unwrap();
                let mut buffer = [0; 1024];
                let length = stream.read(&mut buffer).unwrap();
                asked.push(String::from_utf8_lossy(&buffer[..length]).into_owned());
                stream.write_all(answer.as_bytes()).unwrap();
            }
            asked
        });
        let value = ask(server, "hotdesk-settings", Duration::from_secs(60));
        assert_eq!(value.as_deref(), Some("size = \"800x600\"\n"));
        let asked = answers.join().unwrap();
        assert!(asked[1].starts_with("GET /computeMetadata/v1/instance/attributes/hotdesk-settings HTTP/1.0\r\n"), "{asked:?}");
        assert!(asked[1].contains("Metadata-Flavor: Google\r\n"));
    }

    #[test]
    fn a_server_that_is_not_there_is_not_waited_for_long() {
        let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        assert_eq!(ask(nobody, "hotdesk-token", Duration::ZERO), None);
    }
}
