//! Films, through the native API.

use crate::support::{Desk, kill, until};
use serde_json::Value;

fn json(body: &[u8]) -> Value {
    serde_json::from_slice(body).unwrap()
}

fn frames(desk: &Desk, more_than: u64) {
    until("frames", || desk.get("/v1/recording").1["frames"].as_u64().filter(|frames| *frames > more_than));
}

/// What ffprobe finds in a film: width, height and number of frames.
fn probe(film: &[u8]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("film.mp4");
    std::fs::write(&file, film).unwrap();
    let output = std::process::Command::new("ffprobe")
        .args(["-v", "error", "-count_frames", "-show_entries", "stream=codec_name,width,height", "-of", "csv=p=0"])
        .arg(&file)
        .output()
        .expect("ffprobe must be installed for this test");
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

#[test]
fn a_film_from_begin_to_end() {
    let mut desk = Desk::start(&[]);
    desk.ready();
    assert_eq!(desk.get("/v1/recording").1["state"], "idle");
    assert_eq!(desk.ask("POST", "/v1/recording/stop", "").unwrap().0, 409);
    assert_eq!(desk.get("/v1/recording/film").0, 404);

    let (status, _, body) = desk.ask("POST", "/v1/recording", "").unwrap();
    assert_eq!(status, 201, "{}", json(&body));
    assert_eq!(json(&body)["state"], "recording");
    assert_eq!(desk.ask("POST", "/v1/recording", "").unwrap().0, 409, "one at a time");
    frames(&desk, 10);
    let (status, head, film) = desk.ask("POST", "/v1/recording/stop", "").unwrap();
    assert_eq!(status, 200);
    assert!(head.to_lowercase().contains("content-type: video/mp4"), "{head}");
    assert_eq!(&film[4..8], b"ftyp");
    assert_eq!(probe(&film), "h264,640,480");

    let state = desk.get("/v1/recording").1;
    assert_eq!(state["state"], "finished");
    assert_eq!(state["bytes"].as_u64(), Some(film.len() as u64));
    assert_eq!(desk.ask("GET", "/v1/recording/film", "").unwrap().2, film);
    assert_eq!(desk.ask("DELETE", "/v1/recording", "").unwrap().0, 204);
    assert_eq!(desk.get("/v1/recording").1["state"], "idle");
    desk.stop();
}

#[test]
fn a_part_of_the_screen_of_odd_size() {
    let mut desk = Desk::start(&[]);
    desk.ready();
    for bad in
        [r#"{"fps":0}"#, r#"{"fps":1000}"#, r#"{"region":{"x":600,"y":0,"width":100,"height":50}}"#, r#"{"speed":1}"#, "[", "7"]
    {
        let (status, _, body) = desk.ask("POST", "/v1/recording", bad).unwrap();
        assert_eq!(status, 400, "{bad}: {}", json(&body));
    }
    let request = r#"{"fps":10,"region":{"x":11,"y":7,"width":101,"height":51},"cursor":false}"#;
    assert_eq!(desk.ask("POST", "/v1/recording", request).unwrap().0, 201);
    frames(&desk, 3);
    let film = desk.ask("POST", "/v1/recording/stop", "").unwrap().2;
    assert_eq!(probe(&film), "h264,102,52");
    desk.stop();
}

#[test]
fn a_film_that_breaks_off_is_kept() {
    let mut desk = Desk::start(&[]);
    desk.ready();
    assert_eq!(desk.ask("POST", "/v1/recording", "").unwrap().0, 201);
    frames(&desk, 60);
    kill(desk.pid("x_server").unwrap());
    let state = until("the film to break", || Some(desk.get("/v1/recording").1).filter(|state| state["state"] == "broken"));
    assert!(state["reason"].as_str().unwrap().starts_with("ffmpeg ended by itself"), "{state}");
    let (status, head, film) = desk.ask("POST", "/v1/recording/stop", "").unwrap();
    assert_eq!(status, 200, "{}", String::from_utf8_lossy(&film));
    assert!(head.contains("hotdesk-film-broken"), "{head}");
    assert_eq!(probe(&film), "h264,640,480");
    desk.ready();
    assert_eq!(desk.ask("POST", "/v1/recording", "").unwrap().0, 201, "the next one works");
    desk.stop();
}
