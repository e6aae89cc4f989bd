//! The templates that come with the program.

/// Name and text of each.
pub(crate) const TEMPLATES: &[(&str, &str)] = &[
    ("bare", include_str!("../../../../templates/bare.toml")),
    ("base", include_str!("../../../../templates/base.toml")),
    ("code", include_str!("../../../../templates/code.toml")),
    ("desktop", include_str!("../../../../templates/desktop.toml")),
];

#[cfg(test)]
mod tests {
    #[test]
    fn each_can_be_read() {
        for (name, text) in super::TEMPLATES {
            let template = crate::Template::parse(name, text, None).unwrap();
            assert!(!template.description.is_empty(), "{name} describes itself");
        }
    }
}
