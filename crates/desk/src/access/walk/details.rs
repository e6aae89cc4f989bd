//! The last step of a walk: everything that a node's interfaces promise.

use super::{Toolkit, Walk};
use crate::access::ask::{Ended, Question};
use crate::access::tree::{Action, Area, Node, Value};
use crate::access::wire::Answer;
use crate::access::words::{Interfaces, SHOWING, VISIBLE};
use std::collections::BTreeMap;
use zbus::zvariant::Value as Variant;

/// Stands for the name of an action until it is told. No name has this character.
const UNKNOWN: &str = "\0";

impl Walk<'_> {
    pub(super) fn learn_details(&mut self) -> Result<(), Ended> {
        let mut questions = Vec::new();
        for (node, at) in self.nodes.iter().zip(0..) {
            if self.facts.get(at as usize).is_some_and(|f| f.told) {
                self.details_of(node, at, &mut questions);
            }
        }
        let mut more = Vec::new();
        self.talk.ask(&mut self.nodes, &questions, |nodes, i, answer| {
            let Some(&(at, question)) = questions.get(i) else { return };
            let Some(node) = nodes.get_mut(at as usize) else { return };
            take_detail(node, question, answer);
            match question {
                Question::Actions => more.extend((0..node.actions.len() as i32).map(|i| (at, Question::ActionName(i)))),
                Question::CharacterCount => {
                    if let Ok(Variant::I32(count)) = answer.read::<Variant<'_>>() {
                        more.push((at, Question::Text(count)));
                    }
                }
                _ => {}
            }
        })?;
        self.talk.ask(&mut self.nodes, &more, |nodes, i, answer| {
            let Some(&(at, question)) = more.get(i) else { return };
            if let Some(node) = nodes.get_mut(at as usize) {
                take_detail(node, question, answer);
            }
        })?;
        for (at, facts) in self.facts.iter().enumerate() {
            let Some(bounds) = facts.like.and_then(|like| self.nodes.get(like as usize)).map(|n| n.value) else { continue };
            if let Some(node) = self.nodes.get_mut(at).filter(|n| n.interfaces.has(Interfaces::VALUE)) {
                node.value = Value { current: node.value.current, ..bounds };
            }
        }
        Ok(())
    }

    fn details_of(&self, node: &Node, at: u32, questions: &mut Vec<(u32, Question)>) {
        questions.push((at, Question::Attributes));
        if node.has_state(VISIBLE | SHOWING) && node.interfaces.has(Interfaces::COMPONENT) {
            questions.push((at, Question::Extents));
        }
        let by_bridge = self.toolkit != Toolkit::Other;
        if node.interfaces.has(Interfaces::TEXT) {
            questions.push((at, if by_bridge { Question::Text(-1) } else { Question::CharacterCount }));
        }
        if node.interfaces.has(Interfaces::VALUE) {
            // One by one: `GetAll` kills programs in which one of them cannot be told.
            let is_like_another = self.facts.get(at as usize).is_some_and(|f| f.like.is_some());
            questions.push((at, Question::Value("CurrentValue")));
            if !is_like_another {
                questions.extend(["MinimumValue", "MaximumValue", "MinimumIncrement"].map(|v| (at, Question::Value(v))));
            }
        }
        if node.interfaces.has(Interfaces::ACTION) {
            questions.push((at, Question::Actions));
        }
    }
}

/// Leaves out actions whose names were not told before the program fell silent.
pub(super) fn drop_unknown(node: &mut Node) {
    node.actions.retain(|action| *action.name != *UNKNOWN);
}

fn take_detail(node: &mut Node, question: Question, answer: &Answer<'_>) {
    match question {
        Question::Attributes => {
            if let Ok(attributes) = answer.read::<BTreeMap<&str, &str>>() {
                node.attributes = attributes.into_iter().map(|(k, v)| (k.into(), v.into())).collect();
            }
        }
        Question::Extents => {
            if let Ok((x, y, width, height)) = answer.read::<(i32, i32, i32, i32)>() {
                node.area = Some(Area { x, y, width, height });
            }
        }
        Question::Text(_) => {
            if let Ok(text) = answer.read::<&str>() {
                node.text = Some(without_objects(text));
            }
        }
        Question::Value(name) => {
            if let Ok(value) = answer.read::<Variant<'_>>() {
                take_value(&mut node.value, name, &value);
            }
        }
        Question::Actions => {
            if let Ok(actions) = answer.read::<Vec<(&str, &str, &str)>>() {
                // The name here is for people's eyes; the true one is asked for next.
                let action = |(_, description, keys): (&str, &str, &str)| Action {
                    name: UNKNOWN.into(),
                    description: description.into(),
                    keys: keys.into(),
                };
                node.actions = actions.into_iter().map(action).collect();
            }
        }
        Question::ActionName(i) => {
            if let (Ok(name), Some(action)) = (answer.read::<&str>(), node.actions.get_mut(i as usize)) {
                action.name = name.into();
            }
        }
        _ => {}
    }
}

fn take_value(value: &mut Value, name: &str, told: &Variant<'_>) {
    let number = match told {
        Variant::F64(n) => *n,
        Variant::I32(n) => f64::from(*n),
        _ => return,
    };
    match name {
        "CurrentValue" => value.current = Some(number),
        "MinimumValue" => value.minimum = Some(number),
        "MaximumValue" => value.maximum = Some(number),
        "MinimumIncrement" => value.step = Some(number),
        _ => {}
    }
}

/// Text without the characters that stand for embedded objects and undecodable bytes.
fn without_objects(text: &str) -> Box<str> {
    if text.contains(['\u{fffc}', '\u{fffd}']) { text.replace(['\u{fffc}', '\u{fffd}'], "").into() } else { text.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn embedded_objects_are_no_text() {
        assert_eq!(&*without_objects("a\u{fffc}b\u{fffd}"), "ab");
        assert_eq!(&*without_objects("ab"), "ab");
    }

    #[test]
    fn numbers_of_both_kinds_are_values() {
        let mut value = Value::default();
        take_value(&mut value, "CurrentValue", &Variant::F64(1.5));
        take_value(&mut value, "MinimumValue", &Variant::I32(-2));
        take_value(&mut value, "MaximumValue", &Variant::from("many"));
        take_value(&mut value, "Text", &Variant::F64(3.0));
        assert_eq!(value, Value { current: Some(1.5), minimum: Some(-2.0), ..Value::default() });
    }
}
