//! Shapes of requests and answers that only a client needs to name.

use hotdesk_api::desk::Desk;
use serde::Serialize;
use serde_json::Value;

/// The answer to a step of a desk: done, or still on its way.
#[derive(Debug, Clone)]
pub struct Done {
    pub desk: Desk,
    /// False if the step was not over when the wait was.
    pub over: bool,
}

/// What differs from the default, so that the fleet's own defaults count for the rest.
pub(crate) fn sparse<T: Serialize + Default>(value: &T) -> serde_json::Result<Value> {
    Ok(differing(serde_json::to_value(value)?, &serde_json::to_value(T::default())?))
}

fn differing(value: Value, default: &Value) -> Value {
    match (value, default) {
        (Value::Object(fields), Value::Object(defaults)) => fields
            .into_iter()
            .filter(|(name, field)| defaults.get(name) != Some(field))
            .map(|(name, field)| match defaults.get(&name) {
                Some(default) => {
                    let field = differing(field, default);
                    (name, field)
                }
                None => (name, field),
            })
            .collect(),
        (value, _) => value,
    }
}

#[cfg(test)]
mod tests {
    use super::sparse;
    use hotdesk_api::desk::NewDesk;
    use serde_json::json;

    #[test]
    fn only_what_was_said_is_sent() {
        assert_eq!(sparse(&NewDesk::default()).unwrap(), json!({}));
        let mut desk = NewDesk { name: Some("a".into()), ..NewDesk::default() };
        // Said, though it is what is so without a word: the template may want something else.
        desk.resources.cpus = Some(2.0);
        desk.policy.ttl_s = Some(0);
        desk.labels = Some([("k".to_owned(), "v".to_owned())].into());
        let sent = sparse(&desk).unwrap();
        assert_eq!(sent, json!({"name": "a", "resources": {"cpus": 2.0}, "policy": {"ttl_s": 0}, "labels": {"k": "v"}}));
        assert_eq!(serde_json::from_value::<NewDesk>(sent).unwrap(), desk);
    }
}
