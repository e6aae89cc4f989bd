//! Doing something to an element through its program, without mouse and keyboard.

use super::bus::{Bus, Refusal, down};
use super::tree::Place;
use super::words::Interfaces;
use crate::error::{Error, Result};
use hotdesk_api::access::{Act, ActReply};
use hotdesk_api::action::Point;
use std::time::Duration;
use zbus::Message;
use zbus::names::UniqueName;
use zbus::zvariant::{ObjectPath, Value};

/// For questions; a program that needs longer is hung.
const ANSWER_TIME: Duration = Duration::from_millis(2500);
/// For deeds. A program that opens a dialog in the middle of one answers only when it is closed.
const DEED_TIME: Duration = Duration::from_millis(1500);

const ACCESSIBLE: &str = "org.a11y.atspi.Accessible";
const ACTION: &str = "org.a11y.atspi.Action";
const COMPONENT: &str = "org.a11y.atspi.Component";
const VALUE: &str = "org.a11y.atspi.Value";
/// AT-SPI's word for "wherever it is visible".
const ANYWHERE: u32 = 6;
const ON_SCREEN: u32 = 0;

pub(super) async fn act(bus: &Bus, act: &Act) -> Result<ActReply> {
    let id = act.id();
    let element = Target { bus, place: parse(id)?, id };
    let can = element.interfaces().await?;
    match act {
        Act::Invoke { action, .. } => {
            element.needs(can, Interfaces::ACTION, "be invoked")?;
            let index = element.action(action.as_deref()).await?;
            element.deed(ACTION, "DoAction", &(index,)).await
        }
        Act::Focus { .. } => {
            element.needs(can, Interfaces::COMPONENT, "take the focus")?;
            element.deed(COMPONENT, "GrabFocus", &()).await
        }
        Act::SetText { text, .. } => {
            element.needs(can, Interfaces::EDITABLE_TEXT, "have its text set")?;
            element.deed("org.a11y.atspi.EditableText", "SetTextContents", &(text.as_str(),)).await
        }
        Act::SetValue { value, .. } => {
            element.needs(can, Interfaces::VALUE, "have its value set")?;
            if !value.is_finite() {
                return Err(Error::Invalid("`value` must be a finite number".into()));
            }
            element.set_value(*value).await
        }
        Act::ScrollTo { .. } => {
            element.needs(can, Interfaces::COMPONENT, "be scrolled to")?;
            let reply = element.deed(COMPONENT, "ScrollTo", &(ANYWHERE,)).await?;
            Ok(ActReply { center: element.center().await, ..reply })
        }
    }
}

struct Target<'a> {
    bus: &'a Bus,
    place: Place,
    id: &'a str,
}

impl Target<'_> {
    async fn interfaces(&self) -> Result<Interfaces> {
        let answer = self.bus.ask(&self.place, ACCESSIBLE, "GetInterfaces", &(), ANSWER_TIME).await;
        let answer = answer.map_err(|refusal| self.refused(refusal))?;
        let body = answer.body();
        let names: Vec<&str> = body.deserialize().map_err(Error::internal)?;
        Ok(Interfaces::of(names))
    }

    fn needs(&self, can: Interfaces, needed: Interfaces, what: &str) -> Result<()> {
        if can.has(needed) {
            return Ok(());
        }
        let possible: Vec<&str> = [
            (Interfaces::ACTION, "invoke"),
            (Interfaces::COMPONENT, "focus"),
            (Interfaces::VALUE, "set_value"),
            (Interfaces::EDITABLE_TEXT, "set_text"),
            (Interfaces::COMPONENT, "scroll_to"),
        ]
        .into_iter()
        .filter(|(interface, _)| can.has(*interface))
        .map(|(_, word)| word)
        .collect();
        let possible = if possible.is_empty() { "nothing".to_owned() } else { possible.join(", ") };
        Err(Error::Invalid(format!("the element `{}` can't {what}; possible with it: {possible}", self.id)))
    }

    /// The number of the action of that name.
    async fn action(&self, name: Option<&str>) -> Result<i32> {
        let count = self.bus.get(&self.place, ACTION, "NActions", ANSWER_TIME).await.map_err(|r| self.refused(r))?;
        let count = match count.body().deserialize::<Value<'_>>() {
            // More than anybody looks through.
            Ok(Value::I32(n)) => n.clamp(0, 256),
            _ => 0,
        };
        if count == 0 {
            return Err(Error::Invalid(format!("the element `{}` has no action now", self.id)));
        }
        let Some(name) = name else { return Ok(0) };
        let mut names = Vec::new();
        for index in 0..count {
            let answer = self.bus.ask(&self.place, ACTION, "GetName", &(index,), ANSWER_TIME).await;
            let found: String = answer.map_err(|r| self.refused(r))?.body().deserialize().unwrap_or_default();
            if found == name {
                return Ok(index);
            }
            names.push(format!("`{found}`"));
        }
        Err(Error::Invalid(format!("the element `{}` has no action `{name}`; it has {}", self.id, names.join(", "))))
    }

    /// A call that the program answers with whether it did it.
    async fn deed<B>(&self, interface: &str, member: &str, body: &B) -> Result<ActReply>
    where
        B: serde::Serialize + zbus::zvariant::DynamicType,
    {
        let unconfirmed = ActReply { confirmed: false, value: None, center: None };
        let answer: Message = match self.bus.ask(&self.place, interface, member, body, DEED_TIME).await {
            Ok(answer) => answer,
            // It has the request: said to have failed, it would be sent again.
            Err(Refusal::Silence | Refusal::Lost(_)) => return Ok(unconfirmed),
            Err(refusal) => return Err(self.refused(refusal)),
        };
        // Programs that return nothing are taken at their word.
        if answer.body().deserialize::<bool>().unwrap_or(true) {
            Ok(ActReply { confirmed: true, ..unconfirmed })
        } else {
            Err(Error::Conflict(format!(
                "the program refuses that for `{}` in its present state (is it enabled, sensitive and showing?)",
                self.id
            )))
        }
    }

    async fn set_value(&self, value: f64) -> Result<ActReply> {
        let body = (VALUE, "CurrentValue", Value::from(value));
        let reply = self.deed("org.freedesktop.DBus.Properties", "Set", &body).await?;
        let now = self.bus.get(&self.place, VALUE, "CurrentValue", ANSWER_TIME).await.ok();
        let now = now.and_then(|m| match m.body().deserialize::<Value<'_>>() {
            Ok(Value::F64(v)) if v.is_finite() => Some(v),
            _ => None,
        });
        Ok(ActReply { value: now, ..reply })
    }

    async fn center(&self) -> Option<Point> {
        let answer = self.bus.ask(&self.place, COMPONENT, "GetExtents", &(ON_SCREEN,), ANSWER_TIME).await.ok()?;
        let (x, y, width, height): (i32, i32, i32, i32) = answer.body().deserialize().ok()?;
        Some(Point { x: x.saturating_add(width / 2), y: y.saturating_add(height / 2) })
    }

    fn refused(&self, refusal: Refusal) -> Error {
        match refusal {
            Refusal::Silence => Error::Timeout { what: format!("the program of `{}`", self.id), limit: ANSWER_TIME },
            Refusal::Lost(reason) => down(reason),
            Refusal::Error { name, text } => match name.rsplit('.').next() {
                Some(
                    "UnknownObject" | "UnknownMethod" | "ServiceUnknown" | "NameHasNoOwner" | "UnknownInterface" | "NoReply"
                    | "Disconnected",
                ) => Error::NotFound(format!("the element `{}` is gone; look for it again", self.id)),
                _ => Error::Conflict(format!("the program of `{}` refused: {text} ({name})", self.id)),
            },
        }
    }
}

/// The id's two parts, which must be a unique name and an object path.
fn parse(id: &str) -> Result<Place> {
    let wrong = || Error::Invalid(format!("`{id}` is not the id of an element; ids come from the tree, `find` and `at`"));
    let (bus, path) = id.split_at_checked(id.find('/').ok_or_else(wrong)?).ok_or_else(wrong)?;
    UniqueName::try_from(bus).map_err(|_| wrong())?;
    ObjectPath::try_from(path).map_err(|_| wrong())?;
    Ok(Place { bus: bus.into(), path: path.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_checked() {
        let place = parse(":1.42/org/a11y/atspi/accessible/7").unwrap();
        assert_eq!((&*place.bus, &*place.path), (":1.42", "/org/a11y/atspi/accessible/7"));
        for wrong in ["", "/", ":1.42", "org.a11y.atspi.Registry/x", ":1.1/a b", "ä/b", ":1.1//"] {
            assert!(matches!(parse(wrong), Err(Error::Invalid(_))), "{wrong}");
        }
    }
}
