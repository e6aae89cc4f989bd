//! Pictures inside of a terminal, for those that can: the graphics protocol of kitty, and the one of iTerm2.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::fmt::Write;

/// Of the kitty protocol: the most that one escape may carry.
const CHUNK: usize = 4096;

/// A way to show pictures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Terminal {
    Kitty,
    Iterm,
}

impl Terminal {
    /// What the terminal around us understands, if it says so.
    pub(crate) fn here() -> Option<Self> {
        Self::from(|name| std::env::var(name).unwrap_or_default())
    }

    fn from(variable: impl Fn(&str) -> String) -> Option<Self> {
        // Multiplexers swallow what they do not know.
        let term = variable("TERM");
        if !variable("TMUX").is_empty() || term.starts_with("screen") || term.starts_with("tmux") {
            return None;
        }
        let program = variable("TERM_PROGRAM");
        let kitty = !variable("KITTY_WINDOW_ID").is_empty() || term == "xterm-kitty" || term == "xterm-ghostty";
        if kitty || program == "ghostty" || !variable("KONSOLE_VERSION").is_empty() {
            return Some(Self::Kitty);
        }
        let iterm = program == "iTerm.app" || variable("LC_TERMINAL") == "iTerm2" || program == "WezTerm" || program == "mintty";
        iterm.then_some(Self::Iterm)
    }
}

/// A PNG as the terminal wants to read it, over the whole width.
pub(crate) fn inline(terminal: Terminal, png: &[u8]) -> String {
    let data = STANDARD.encode(png);
    match terminal {
        Terminal::Iterm => format!("\x1b]1337;File=inline=1;size={};width=100%;preserveAspectRatio=1:{data}\x07\n", png.len()),
        Terminal::Kitty => {
            let columns = crate::live::size().map_or(80, |(columns, _)| columns);
            let mut text = String::with_capacity(data.len() + data.len() / CHUNK * 16 + 64);
            let chunks = data.as_bytes().chunks(CHUNK).count();
            for (number, chunk) in data.as_bytes().chunks(CHUNK).enumerate() {
                let more = u8::from(number + 1 < chunks);
                let _ = match number {
                    0 => write!(text, "\x1b_Ga=T,f=100,c={columns},q=2,m={more};"),
                    _ => write!(text, "\x1b_Gm={more};"),
                };
                text.push_str(&String::from_utf8_lossy(chunk));
                text.push_str("\x1b\\");
            }
            text.push('\n');
            text
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminals_that_can() {
        let here = |wanted: &'static [(&str, &str)]| {
            Terminal::from(|name| wanted.iter().find(|(key, _)| *key == name).map_or(String::new(), |(_, value)| (*value).into()))
        };
        assert_eq!(here(&[("TERM", "xterm-kitty")]), Some(Terminal::Kitty));
        assert_eq!(here(&[("TERM_PROGRAM", "iTerm.app")]), Some(Terminal::Iterm));
        assert_eq!(here(&[("TERM_PROGRAM", "WezTerm")]), Some(Terminal::Iterm));
        assert_eq!(here(&[("TERM", "xterm-256color")]), None);
        assert_eq!(here(&[("TERM", "xterm-kitty"), ("TMUX", "/tmp/x")]), None);
    }

    #[test]
    fn pictures_are_cut_into_chunks() {
        let text = inline(Terminal::Kitty, &[7; 8000]);
        assert_eq!(text.matches("\x1b_G").count(), 3);
        assert_eq!(text.matches("m=1;").count(), 2);
        assert!(text.contains("a=T,f=100") && text.ends_with("\x1b\\\n"));
        let data: String = text.split("\x1b\\").filter_map(|part| part.split_once(';')).map(|(_, data)| data).collect();
        assert_eq!(STANDARD.decode(data).unwrap(), [7; 8000]);
        assert!(inline(Terminal::Iterm, b"x").starts_with("\x1b]1337;File=inline=1;size=1;"));
    }
}
