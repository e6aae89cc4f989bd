//! Snapshots of sandboxes, which E2B keeps as templates.

use super::Team;
use crate::cloud::{Call, escaped, gone_is_good};
use crate::{Error, Result};
use serde::Deserialize;
use serde_json::json;

const PAGE: usize = 100;

#[derive(Debug, Clone, Deserialize)]
struct Saved {
    #[serde(rename = "snapshotID")]
    id: String,
    names: Vec<String>,
}

impl Saved {
    /// `team/NAME:tag`
    fn is_named(&self, wanted: &str) -> bool {
        self.names.iter().chain([&self.id]).any(|name| bare(name) == wanted)
    }
}

fn bare(name: &str) -> &str {
    let name = name.rsplit('/').next().unwrap_or(name);
    name.split(':').next().unwrap_or(name)
}

impl Team {
    fn snapshot_name(&self, id: &str) -> String {
        format!("hotdesk-{}-{id}", self.context.fleet)
    }

    pub(super) async fn save(&self, id: &str, snapshot: &str) -> Result<u64> {
        let gone = || Error::NotFound(format!("desk {id} has no sandbox at E2B"));
        let listed = self.look(id).await?.ok_or_else(gone)?;
        if self.find(snapshot).await?.is_none() {
            // A second one of the same name would be another version of it, so it is sent again only when the first is nowhere.
            let body = json!({ "name": self.snapshot_name(snapshot) });
            let call = Call::post(format!("/sandboxes/{}/snapshots", escaped(&listed.sandbox_id))).json(body);
            if let Err(fault) = self.api.ask(call).await
                && (!fault.passes() || self.find(snapshot).await?.is_none())
            {
                return Err(fault.into());
            }
        }
        // E2B does not tell how large it is.
        Ok(0)
    }

    /// What a new sandbox is made from.
    pub(super) async fn find(&self, snapshot: &str) -> Result<Option<String>> {
        let name = self.snapshot_name(snapshot);
        let all: Vec<Saved> = self.api.ask_for(Call::get("/snapshots").query("name", &name).query("limit", PAGE)).await?;
        Ok(all.into_iter().find(|saved| saved.is_named(&name)).map(|saved| saved.id))
    }

    pub(super) async fn drop_snapshot(&self, snapshot: &str) -> Result<()> {
        let Some(id) = self.find(snapshot).await? else { return Ok(()) };
        Ok(gone_is_good(self.api.ask(Call::delete(format!("/templates/{}", escaped(&id)))).await)?)
    }

    pub(super) async fn saved(&self) -> Result<Vec<String>> {
        let prefix = self.snapshot_name("");
        let mut all = Vec::new();
        let mut next: Option<String> = None;
        loop {
            let mut call = Call::get("/snapshots").query("limit", PAGE);
            if let Some(token) = &next {
                call = call.query("nextToken", token);
            }
            let reply = self.api.ask(call).await?;
            for saved in reply.json::<Vec<Saved>>()? {
                let name = saved.names.iter().chain([&saved.id]).find_map(|name| bare(name).strip_prefix(&prefix));
                all.extend(name.map(str::to_owned));
            }
            match reply.headers.get("x-next-token").and_then(|v| v.to_str().ok()).filter(|v| !v.is_empty()) {
                Some(token) if next.as_deref() != Some(token) => next = Some(token.to_owned()),
                _ => return Ok(all),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_within_their_team_and_tag() {
        let saved = Saved { id: "team/hotdesk-f-s-1:default".into(), names: vec![] };
        assert!(saved.is_named("hotdesk-f-s-1") && !saved.is_named("hotdesk-f-s-2"));
        assert_eq!((bare("a/b:c"), bare("b")), ("b", "b"));
    }
}
