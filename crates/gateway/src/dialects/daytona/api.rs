//! The control plane: which call is meant.

use super::reply::{Failure, Reply, ok};
use super::{Call, access, create, sandboxes, snapshots, view, volumes};
use axum::http::Method;
use serde_json::json;

pub(crate) async fn answer(call: Call, words: &[&str]) -> Reply {
    let method = call.parts.method.clone();
    match (&method, words) {
        (&Method::GET, ["config"]) => config(&call).await,
        (&Method::GET, ["health"]) => ok(json!({"status": "ok"})),
        (&Method::POST, ["sandbox"]) => create::create(call).await,
        (&Method::GET, ["sandbox"]) => sandboxes::list(call).await,
        (&Method::GET, ["sandbox", "paginated"]) => sandboxes::paginated(call).await,
        (_, ["sandbox", "ssh-access", ..]) => Err(no_ssh()),
        (&Method::GET, ["sandbox", id]) => sandboxes::get(call, id).await,
        (&Method::DELETE, ["sandbox", id]) => sandboxes::delete(call, id).await,
        (_, ["sandbox", id, rest @ ..]) => below_sandbox(call, id, rest).await,
        (_, ["volumes", rest @ ..]) => volumes::answer(call, rest).await,
        (_, ["snapshots", rest @ ..]) => snapshots::answer(call, rest).await,
        (&Method::GET, ["object-storage", "push-access"]) => Err(Failure::unsupported(
            "images with files of the client can't be built here: upload the files to the sandbox instead",
        )),
        (_, ["warm-pools", ..]) => Err(Failure::unsupported("pools of this fleet are kept with `hotdesk pool`")),
        (_, ["secret", ..]) => Err(Failure::unsupported("this fleet keeps no secrets for sandboxes: use environment variables")),
        _ => Err(nothing(&call)),
    }
}

async fn below_sandbox(call: Call, id: &str, words: &[&str]) -> Reply {
    let method = call.parts.method.clone();
    match (&method, words) {
        (&Method::POST, ["start"]) => sandboxes::start(call, id).await,
        (&Method::POST, ["stop"]) => sandboxes::stop(call, id).await,
        (&Method::POST, ["archive"]) => sandboxes::archive(call, id).await,
        (&Method::POST, ["recover"]) => sandboxes::recover(call, id).await,
        (&Method::POST, ["fork"]) => sandboxes::fork(call, id).await,
        (&Method::POST, ["snapshot"]) => snapshots::of_sandbox(call, id).await,
        (&Method::PUT, ["labels"]) => sandboxes::set_labels(call, id).await,
        (&Method::POST, ["public", value]) => sandboxes::set_public(call, id, value).await,
        (&Method::POST, [interval @ ("autostop" | "autoarchive" | "autodelete" | "autopause" | "ttl"), minutes]) => {
            sandboxes::set_interval(call, id, interval, minutes).await
        }
        (&Method::POST, ["last-activity"]) => sandboxes::touch(call, id).await,
        (&Method::POST, ["pause"]) => Err(Failure::unsupported("sandboxes here are stopped and started, not paused")),
        (&Method::POST, ["resize"]) => Err(Failure::unsupported("the size of a sandbox is fixed when it is made here")),
        (&Method::POST, ["network-settings"]) => {
            Err(Failure::unsupported("the network of a sandbox is fixed when it is made here: use networkBlockAll then"))
        }
        (&Method::GET, ["ports", port, "preview-url"]) => access::preview_url(call, id, port).await,
        (&Method::GET, ["ports", port, "signed-preview-url"]) => access::signed_url(call, id, port).await,
        (&Method::POST, ["ports", _, "signed-preview-url", token, "expire"]) => access::expire(call, id, token).await,
        (&Method::GET, ["toolbox-proxy-url"]) => {
            let desk = sandboxes::find(&call, id).await?;
            ok(json!({"url": view::sandbox(&call.app, &call.caller, &desk)["toolboxProxyUrl"]}))
        }
        (&Method::GET, ["build-logs-url"]) => {
            let desk = sandboxes::find(&call, id).await?;
            ok(json!({"url": format!("{}/daytona/api/sandbox/{}/build-logs", view::base(&call.app, &call.caller), desk.id)}))
        }
        (&Method::GET, ["build-logs"]) => snapshots::sandbox_logs(call, id).await,
        (&Method::GET, ["signing-key"]) => access::signing_key(call, id, false).await,
        (&Method::POST, ["signing-key", "rotate"]) => access::signing_key(call, id, true).await,
        (&Method::GET, ["forks" | "ancestors"]) => {
            sandboxes::find(&call, id).await?;
            ok(json!([]))
        }
        (_, ["ssh-access", ..]) => Err(no_ssh()),
        _ => Err(nothing(&call)),
    }
}

fn no_ssh() -> Failure {
    Failure::unsupported("sandboxes here have no SSH: use a terminal (PTY), or `hotdesk sh`")
}

pub(crate) fn nothing(call: &Call) -> Failure {
    let path = call.parts.uri.path();
    let path = crate::credentials::redacted(path);
    Failure::not_found(format!("Cannot {} {}", call.parts.method, path.escape_default()))
}

async fn config(call: &Call) -> Reply {
    let base = view::base(&call.app, &call.caller);
    ok(json!({
        "version": env!("CARGO_PKG_VERSION"),
        "oidc": {"issuer": base, "clientId": "hotdesk", "audience": "hotdesk", "provider": "none"},
        "linkedAccountsEnabled": false,
        "announcements": {},
        "proxyTemplateUrl": format!("{base}/daytona/preview/{{{{sandboxId}}}}/{{{{PORT}}}}"),
        "proxyToolboxUrl": format!("{base}/daytona/toolbox"),
        "defaultSnapshot": snapshots::DEFAULT,
        "dashboardUrl": base,
        "maxAutoArchiveInterval": 43_200,
        "maintananceMode": false,
        "environment": "hotdesk",
    }))
}
