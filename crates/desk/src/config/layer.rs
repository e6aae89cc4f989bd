//! One layer of settings, and how layers become a [`Config`].

use super::value::{
    AttachTarget, DisplayChoice, ListenAddress, LogFormat, ScreenSize, Secret, VncAddress, WindowManagerChoice, XServerChoice,
};
use super::{Browser, Config, ConfigError};
use crate::server::token::Token;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A settings file that is larger than this is not one.
const LARGEST_FILE: u64 = 1024 * 1024;
/// A token that is longer than this does not fit into a header.
const LARGEST_TOKEN: u64 = 4096;

/// Settings with holes: what one layer says.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    #[serde(default, deserialize_with = "one_or_more")]
    pub listen: Option<Vec<ListenAddress>>,
    pub open: Option<bool>,
    pub token: Option<Secret>,
    pub token_file: Option<PathBuf>,
    pub names: Option<Vec<String>>,
    pub origins: Option<Vec<String>>,
    pub display: Option<DisplayChoice>,
    pub attach: Option<AttachTarget>,
    pub size: Option<ScreenSize>,
    pub vnc: Option<VncAddress>,
    pub vnc_password: Option<Secret>,
    pub x_server: Option<XServerChoice>,
    pub wm: Option<WindowManagerChoice>,
    pub home: Option<PathBuf>,
    pub start: Option<Vec<String>>,
    pub entrypoint: Option<String>,
    #[serde(default)]
    pub browser: BrowserSettings,
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    pub log_format: Option<LogFormat>,
}

/// What one layer says about the browser.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BrowserSettings {
    pub persistent: Option<bool>,
    pub debugging_host: Option<String>,
    pub debugging_port: Option<u16>,
    pub telemetry: Option<bool>,
}

impl Settings {
    /// The layer of a TOML file.
    pub fn from_file(path: &Path) -> Result<Self, ConfigError> {
        let text = read_small(path, LARGEST_FILE, "settings")?;
        let mut settings = Self::from_toml(&text)
            .map_err(|e| ConfigError::new(format!("{} is not a settings file: {}", path.display(), e.message), TOML_HINT))?;
        // A path in a file is meant from where the file lies.
        let folder = path.parent().unwrap_or(Path::new("."));
        for named in [&mut settings.token_file, &mut settings.home].into_iter().flatten() {
            *named = folder.join(&*named);
        }
        Ok(settings)
    }

    pub fn from_toml(text: &str) -> Result<Self, ConfigError> {
        toml::from_str(text).map_err(|e| ConfigError::new(e.to_string().trim_end(), TOML_HINT))
    }

    /// The layer of the variables that OpenManus' images know.
    pub fn from_openmanus(variable: impl Fn(&str) -> Option<String>) -> Result<Self, ConfigError> {
        let variable = |name: &str| variable(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty());
        let mut settings = Self::default();
        if let Some(text) = variable("RESOLUTION") {
            settings.size = Some(parse("RESOLUTION", &text)?);
        } else {
            let width = variable("RESOLUTION_WIDTH");
            let height = variable("RESOLUTION_HEIGHT");
            if width.is_some() || height.is_some() {
                let default = Config::default().size;
                let width = width.map_or(Ok(default.width), |text| parse_number("RESOLUTION_WIDTH", &text))?;
                let height = height.map_or(Ok(default.height), |text| parse_number("RESOLUTION_HEIGHT", &text))?;
                let size = ScreenSize::new(width, height).map_err(|e| bad_variable("RESOLUTION_WIDTH/HEIGHT", &e.0))?;
                settings.size = Some(size);
            }
        }
        settings.vnc_password = variable("VNC_PASSWORD").map(|text| parse("VNC_PASSWORD", &text)).transpose()?;
        settings.browser = BrowserSettings {
            persistent: variable("CHROME_PERSISTENT_SESSION")
                .map(|text| parse_bool("CHROME_PERSISTENT_SESSION", &text))
                .transpose()?,
            debugging_host: variable("CHROME_DEBUGGING_HOST"),
            debugging_port: variable("CHROME_DEBUGGING_PORT")
                .map(|text| parse_number("CHROME_DEBUGGING_PORT", &text))
                .transpose()?,
            telemetry: variable("ANONYMIZED_TELEMETRY").map(|text| parse_bool("ANONYMIZED_TELEMETRY", &text)).transpose()?,
        };
        Ok(settings)
    }

    /// This layer over that one.
    pub fn over(self, lower: Self) -> Self {
        // A token that is named here must not lose to a file that is named below.
        let token_here = self.token.is_some() || self.token_file.is_some();
        let (lower_token, lower_token_file) = if token_here { (None, None) } else { (lower.token, lower.token_file) };
        // To attach and to make a display exclude each other, so the higher layer's word counts alone.
        let display_here = self.display.is_some() || self.attach.is_some();
        let (lower_display, lower_attach) = if display_here { (None, None) } else { (lower.display, lower.attach) };
        let mut env = lower.env;
        env.extend(self.env);
        Self {
            listen: self.listen.or(lower.listen),
            open: self.open.or(lower.open),
            token: self.token.or(lower_token),
            token_file: self.token_file.or(lower_token_file),
            names: self.names.or(lower.names),
            origins: self.origins.or(lower.origins),
            display: self.display.or(lower_display),
            attach: self.attach.or(lower_attach),
            size: self.size.or(lower.size),
            vnc: self.vnc.or(lower.vnc),
            vnc_password: self.vnc_password.or(lower.vnc_password),
            x_server: self.x_server.or(lower.x_server),
            wm: self.wm.or(lower.wm),
            home: self.home.or(lower.home),
            start: self.start.or(lower.start),
            entrypoint: self.entrypoint.or(lower.entrypoint),
            browser: BrowserSettings {
                persistent: self.browser.persistent.or(lower.browser.persistent),
                debugging_host: self.browser.debugging_host.or(lower.browser.debugging_host),
                debugging_port: self.browser.debugging_port.or(lower.browser.debugging_port),
                telemetry: self.browser.telemetry.or(lower.browser.telemetry),
            },
            env,
            log_format: self.log_format.or(lower.log_format),
        }
    }

    /// Fills the holes with defaults and checks the whole.
    pub fn resolve(self) -> Result<Config, ConfigError> {
        let default = Config::default();
        // Whoever asks a fleet for a desk names its entrypoint among the variables; the desk's programs have no use for it.
        let mut env = self.env;
        let asked = env.remove(hotdesk_api::shell::ENTRYPOINT_VARIABLE);
        let token = match (self.token, self.token_file) {
            (Some(token), None) => Some(token_of(&token, "the token")?),
            (None, Some(path)) => Some(token_from(&path)?),
            (None, None) => None,
            (Some(_), Some(_)) => return Err(ConfigError::new("`token` and `token_file` are both given", "keep one of the two")),
        };
        Config {
            listen: self.listen.map_or(default.listen, |addresses| addresses.into_iter().map(|address| address.0).collect()),
            open: self.open.unwrap_or(default.open),
            token,
            names: self.names.unwrap_or_default(),
            origins: self.origins.unwrap_or_default(),
            display: self.display.unwrap_or(default.display),
            attach: self.attach,
            size: self.size.map_or(default.size, |size| size.0),
            vnc: self.vnc.map(|address| address.0),
            vnc_password: self.vnc_password,
            x_server: self.x_server.unwrap_or(default.x_server),
            window_manager: self.wm.unwrap_or(default.window_manager),
            home: self.home,
            start: self.start.unwrap_or(default.start),
            entrypoint: self.entrypoint.or(asked).filter(|command| !command.trim().is_empty()),
            browser: Browser {
                persistent: self.browser.persistent.unwrap_or(default.browser.persistent),
                debugging_host: self.browser.debugging_host.unwrap_or(default.browser.debugging_host),
                debugging_port: self.browser.debugging_port.unwrap_or(default.browser.debugging_port),
                telemetry: self.browser.telemetry.unwrap_or(default.browser.telemetry),
            },
            env,
            log_format: self.log_format.unwrap_or(default.log_format),
        }
        .check()
    }
}

const TOML_HINT: &str = "settings are written like `size = \"1920x1080\"`; docs/settings.md lists them";

fn token_from(path: &Path) -> Result<Token, ConfigError> {
    let what = format!("the token in {}", path.display());
    token_of(&Secret::new(read_small(path, LARGEST_TOKEN, "token")?), &what)
}

fn token_of(secret: &Secret, what: &str) -> Result<Token, ConfigError> {
    Token::new(secret.reveal())
        .map_err(|e| ConfigError::new(format!("{what} can't be used: {e}"), "make one with `openssl rand -hex 32`"))
}

/// `listen = "…"` or `listen = ["…", "…"]`.
fn one_or_more<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<ListenAddress>>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Form {
        One(String),
        More(Vec<String>),
    }
    let texts = match Form::deserialize(deserializer)? {
        Form::One(text) => vec![text],
        Form::More(texts) => texts,
    };
    texts.iter().map(|text| text.parse().map_err(serde::de::Error::custom)).collect::<Result<_, _>>().map(Some)
}

fn read_small(path: &Path, limit: u64, what: &str) -> Result<String, ConfigError> {
    use std::io::Read;
    let fail = |e: std::io::Error| {
        ConfigError::new(
            format!("the {what} file {} can't be read: {e}", path.display()),
            "name a file that exists and that this user may read",
        )
    };
    let mut text = String::new();
    std::fs::File::open(path).map_err(fail)?.take(limit + 1).read_to_string(&mut text).map_err(fail)?;
    if text.len() as u64 > limit {
        return Err(ConfigError::new(
            format!("the {what} file {} is larger than {limit} bytes", path.display()),
            "name another file",
        ));
    }
    Ok(text)
}

fn bad_variable(name: &str, why: &str) -> ConfigError {
    ConfigError::new(format!("the environment variable {name} can't be used: {why}"), format!("correct {name} or unset it"))
}

fn parse<T: std::str::FromStr<Err = super::ValueError>>(name: &str, text: &str) -> Result<T, ConfigError> {
    text.parse().map_err(|e: super::ValueError| bad_variable(name, &e.0))
}

fn parse_number<T: std::str::FromStr>(name: &str, text: &str) -> Result<T, ConfigError> {
    text.parse().map_err(|_| bad_variable(name, &format!("`{text}` is not a number in range")))
}

fn parse_bool(name: &str, text: &str) -> Result<bool, ConfigError> {
    match text.to_ascii_lowercase().as_str() {
        "1" | "true" | "yes" | "on" => Ok(true),
        "0" | "false" | "no" | "off" => Ok(false),
        _ => Err(bad_variable(name, &format!("`{text}` is neither true nor false"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn openmanus(pairs: &[(&str, &str)]) -> Result<Settings, ConfigError> {
        Settings::from_openmanus(|name| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned()))
    }

    fn size(text: &str) -> Settings {
        Settings { size: Some(text.parse().unwrap()), ..Settings::default() }
    }

    #[test]
    fn the_higher_layer_wins() {
        // flag or HOTDESK_*, OpenManus, file → what counts
        type Case<'a> = (Option<&'a str>, &'a [(&'a str, &'a str)], &'a str, (u32, u32));
        let table: [Case<'_>; 6] = [
            (Some("100x100"), &[("RESOLUTION", "200x200x24")], "size = '300x300'", (100, 100)),
            (None, &[("RESOLUTION", "200x200x24")], "size = '300x300'", (200, 200)),
            (None, &[("RESOLUTION_WIDTH", "800"), ("RESOLUTION_HEIGHT", "600")], "size = '300x300'", (800, 600)),
            (None, &[("RESOLUTION_WIDTH", "800")], "", (800, 1080)),
            (None, &[("RESOLUTION", "  ")], "size = '300x300'", (300, 300)),
            (None, &[], "", (1920, 1080)),
        ];
        for (flag, variables, file, expected) in table {
            let flags = flag.map(size).unwrap_or_default();
            let config = flags.over(openmanus(variables).unwrap()).over(Settings::from_toml(file).unwrap()).resolve().unwrap();
            assert_eq!((config.size.width, config.size.height), expected, "{flag:?} {variables:?} {file:?}");
        }
    }

    #[test]
    fn openmanus_variables() {
        let config = openmanus(&[
            ("CHROME_PERSISTENT_SESSION", "true"),
            ("CHROME_DEBUGGING_PORT", "1337"),
            ("CHROME_DEBUGGING_HOST", "0.0.0.0"),
            ("ANONYMIZED_TELEMETRY", "false"),
            ("VNC_PASSWORD", "vncpassword"),
        ])
        .unwrap()
        .resolve()
        .unwrap();
        assert_eq!(
            config.browser,
            Browser { persistent: true, debugging_host: "0.0.0.0".into(), debugging_port: 1337, telemetry: false }
        );
        assert_eq!(config.vnc_password.unwrap().reveal(), "vncpassword");
        for bad in [
            ("RESOLUTION", "big"),
            ("RESOLUTION_WIDTH", "1"),
            ("CHROME_DEBUGGING_PORT", "99999"),
            ("ANONYMIZED_TELEMETRY", "perhaps"),
        ] {
            let error = openmanus(&[bad]).unwrap_err();
            assert!(error.message.contains(bad.0), "{error}");
            assert!(error.hint.is_some());
        }
    }

    #[test]
    fn a_whole_file() {
        let config = Settings::from_toml(
            r#"
            listen = "0.0.0.0:5000"
            open = true
            display = ":7"
            size = "1280x800"
            vnc = "5900"
            x_server = "Xtigervnc"
            wm = "xfwm4 --compositor=off"
            home = "/home/user"
            start = ["gedit", "xterm -geometry 80x24"]
            log_format = "json"
            [browser]
            persistent = true
            [env]
            LANG = "de_DE.UTF-8"
            "#,
        )
        .unwrap()
        .resolve()
        .unwrap();
        assert_eq!(config.display, DisplayChoice::Number(7));
        assert_eq!(config.vnc.unwrap().to_string(), "127.0.0.1:5900");
        assert_eq!(config.start.len(), 2);
        assert_eq!(config.env["LANG"], "de_DE.UTF-8");
        assert!(config.browser.persistent);
    }

    #[test]
    fn an_entrypoint_is_a_setting_or_among_the_variables() {
        let of = |file: &str| Settings::from_toml(file).unwrap().resolve().unwrap();
        assert_eq!(of("entrypoint = 'serve'").entrypoint.as_deref(), Some("serve"));
        let config = of("[env]\nHOTDESK_ENTRYPOINT = 'serve --fast'\nOTHER = '1'");
        assert_eq!(config.entrypoint.as_deref(), Some("serve --fast"));
        assert_eq!(config.env.into_keys().collect::<Vec<_>>(), ["OTHER"], "programs do not see it");
        assert_eq!(of("entrypoint = ' '").entrypoint, None);
    }

    #[test]
    fn unknown_settings_are_refused() {
        for file in ["sizze = '1x1'", "size = 3", "[browser]\nport = 1", "display = ':x'", "="] {
            assert!(Settings::from_toml(file).is_err(), "{file}");
        }
    }

    #[test]
    fn nothing_is_open_by_default() {
        let vnc = Settings { vnc: Some("0.0.0.0:5900".parse().unwrap()), ..Settings::default() };
        assert!(vnc.clone().resolve().is_err());
        assert!(Settings { vnc_password: Some(Secret::new("p")), ..vnc }.resolve().is_ok());
    }

    #[test]
    fn attach_above_beats_display_below() {
        let flags = Settings { attach: Some(AttachTarget(0)), ..Settings::default() };
        let config = flags.over(Settings::from_toml("display = ':5'").unwrap()).resolve().unwrap();
        assert_eq!(config.attach, Some(AttachTarget(0)));
        assert_eq!(config.display, DisplayChoice::Unnamed);
    }

    #[test]
    fn a_token_from_a_file() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("token"), "abc\n").unwrap();
        std::fs::write(folder.path().join("desk.toml"), "token_file = 'token'\nlisten = ['127.0.0.1:1', 'unix:/x']\n").unwrap();
        let config = Settings::from_file(&folder.path().join("desk.toml")).unwrap().resolve().unwrap();
        assert!(config.token.unwrap().is("abc"));
        std::fs::write(folder.path().join("token"), "\n").unwrap();
        assert!(Settings::from_file(&folder.path().join("desk.toml")).unwrap().resolve().is_err());
        assert!(Settings::from_file(&folder.path().join("missing.toml")).unwrap_err().message.contains("missing.toml"));
    }
}
