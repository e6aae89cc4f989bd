//! What tools are called with, and its description for clients: tight, without references, because not every client follows them.

use rmcp::model::JsonObject;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};
use std::sync::Arc;

/// The schema of a tool's arguments.
pub(super) fn schema<T: JsonSchema>() -> Arc<JsonObject> {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let mut value = settings.into_generator().into_root_schema_for::<T>().to_value();
    tidy(&mut value);
    match value {
        Value::Object(mut map) => {
            map.entry("properties").or_insert_with(|| Value::Object(Map::new()));
            // The same where nothing is put together from several schemas, and known to more clients.
            if let Some(closed) = map.remove("unevaluatedProperties") {
                map.insert("additionalProperties".into(), closed);
            }
            Arc::new(map)
        }
        _ => Arc::default(),
    }
}

/// Takes out what says nothing to a model: names of our types, number formats, and `null` where leaving out is the same.
fn tidy(value: &mut Value) {
    match value {
        Value::Object(map) => {
            if map.get("title").is_some_and(Value::is_string) {
                map.remove("title");
            }
            if map.get("format").is_some_and(Value::is_string) {
                map.remove("format");
            }
            if map.get("default").is_some_and(Value::is_null) {
                map.remove("default");
            }
            if let Some(Value::Array(kinds)) = map.get_mut("type") {
                kinds.retain(|kind| kind != "null");
                if let [kind] = kinds.as_slice() {
                    let kind = kind.clone();
                    map.insert("type".into(), kind);
                }
            }
            // `anyOf: [X, null]` is X.
            if let Some(Value::Array(choices)) = map.get_mut("anyOf") {
                choices.retain(|choice| choice.get("type").is_none_or(|kind| kind != "null"));
                if let [Value::Object(only)] = choices.as_slice() {
                    let only = only.clone();
                    map.remove("anyOf");
                    for (name, part) in only {
                        map.entry(name).or_insert(part);
                    }
                }
            }
            if let Some(Value::Array(values)) = map.get_mut("enum") {
                values.retain(|value| !value.is_null());
            }
            map.values_mut().for_each(tidy);
        }
        Value::Array(list) => list.iter_mut().for_each(tidy),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[derive(JsonSchema)]
    #[schemars(deny_unknown_fields)]
    #[expect(dead_code)]
    struct Example {
        /// A name.
        name: Option<String>,
        choice: Option<Choice>,
        count: u32,
    }

    #[derive(JsonSchema)]
    #[schemars(rename_all = "snake_case")]
    #[expect(dead_code)]
    enum Choice {
        One,
        Two,
    }

    #[test]
    fn schemas_are_plain() {
        assert_eq!(
            Value::Object((*schema::<Example>()).clone()),
            json!({
                "type": "object",
                "additionalProperties": false,
                "required": ["count"],
                "properties": {
                    "name": {"type": "string", "description": "A name."},
                    "choice": {"type": "string", "enum": ["one", "two"]},
                    "count": {"type": "integer", "minimum": 0},
                }
            })
        );
    }
}
