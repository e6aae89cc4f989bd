//! `scrot`: a picture of the screen into a file.

use super::{Done, complain, desk};
use hotdesk_desk_client::http::Method;

pub(super) fn scrot(words: &[String]) -> Done {
    let mut pointer = false;
    let mut file = None;
    for word in words {
        match word.as_str() {
            "-p" | "--pointer" => pointer = true,
            // Writing over is what happens anyway, and nothing is printed.
            "-o" | "--overwrite" | "-z" | "--silent" => {}
            word if word.starts_with('-') || word.contains(['%', '$']) => return Done::Unknown,
            word if file.is_none() => file = Some(word.to_owned()),
            _ => return Done::Unknown,
        }
    }
    let Some(file) = file.filter(|file| file.to_ascii_lowercase().ends_with(".png")) else { return Done::Unknown };
    let path = format!("/v1/screenshot?format=png&cursor={}", if pointer { "true" } else { "none" });
    match desk::ask(async |desk| desk.bytes(Method::GET, &path, Default::default()).await) {
        None => Done::Unknown,
        Some(Err(error)) => {
            complain(&format!("scrot: {}", desk::reason(&error)));
            Done::Code(2)
        }
        Some(Ok(picture)) => match std::fs::write(&file, picture.bytes) {
            Ok(()) => Done::Code(0),
            Err(e) => {
                complain(&format!("scrot: Saving to file {file} failed: {e}"));
                Done::Code(2)
            }
        },
    }
}
