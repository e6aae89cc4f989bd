//! The desk's token, from whoever started the machine.

use super::metadata;
use std::collections::BTreeMap;

/// QEMU's `-fw_cfg name=opt/hotdesk/token,…`. Only root can read it.
const FW_CFG: &str = "/sys/firmware/qemu_fw_cfg/by_name/opt/hotdesk/token/raw";
/// On Google's clouds: an attribute of the machine.
const ATTRIBUTE: &str = "hotdesk-token";

pub(super) fn find(words: &BTreeMap<String, String>) -> Option<String> {
    let usable = |text: String| Some(text.trim().to_owned()).filter(|token| !token.is_empty());
    std::fs::read_to_string(FW_CFG)
        .ok()
        .and_then(usable)
        .or_else(|| words.get("hotdesk.token").cloned().and_then(usable))
        .or_else(|| metadata::attribute(ATTRIBUTE).and_then(usable))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_has_a_token() {
        let words = BTreeMap::from([("hotdesk.token".to_owned(), "abc".to_owned())]);
        assert_eq!(find(&words).as_deref(), Some("abc"));
    }
}
