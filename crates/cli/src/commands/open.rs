//! `hotdesk open`: the dashboard, signed in, or the live view of a desk in a VNC viewer.

use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::out;
use crate::reach::{self, Reach, title};
use crate::waiting::say;
use clap::Args;
use hotdesk_client::{Client, Desk, Target};
use std::net::Ipv4Addr;
use std::process::{Command, Stdio};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// What a viewer sends at once.
const PIECE: usize = 16 * 1024;

/// Viewers that are started if they are there.
const VIEWERS: [&str; 5] = ["vncviewer", "xtigervncviewer", "gvncviewer", "vinagre", "remmina"];

/// How long a browser may take to read the address that it was started with.
const BROWSER_READS: Duration = Duration::from_secs(5);

#[derive(Debug, Args)]
pub(crate) struct OpenArgs {
    /// The desk, by id, name or the beginning of either [default: all of them, on the wall]
    desk: Option<String>,

    /// Only print the address; start nothing
    #[arg(long)]
    print: bool,

    /// In a VNC viewer instead of the dashboard; without DESK, the only desk that runs
    #[arg(long)]
    vnc: bool,

    /// Print the WebSocket that noVNC and other viewers in browsers connect to, and end; it holds the key
    #[arg(long, conflicts_with_all = ["print", "vnc"])]
    websocket: bool,

    /// The port of this machine that VNC viewers connect to [default: a free one]
    #[arg(long, value_name = "PORT", requires = "vnc")]
    port: Option<u16>,

    #[command(flatten)]
    reach: Reach,
}

pub(crate) fn run(args: OpenArgs) -> Exit {
    reach::run(async move {
        let client = args.reach.client()?;
        if args.vnc {
            let desk = reach::desk_or_only(&client, args.desk.as_deref()).await?;
            let what = title(&desk);
            return serve(client.desk(&desk.id), &what, &args).await;
        }
        if matches!(client.target(), Target::Unix(_)) {
            return Err(
                Failure::usage("browsers can't use a Unix socket").hint("let the fleet listen on a port too, or use --vnc")
            );
        }
        if args.websocket {
            let desk = reach::desk_or_only(&client, args.desk.as_deref()).await?;
            return Ok(out::line(&websocket(&client, &desk.id)));
        }
        let path = match &args.desk {
            Some(desk) => vec!["desks".to_owned(), reach::desk(&client, desk).await?.id],
            None => Vec::new(),
        };
        let page = page(&client, &path.iter().map(String::as_str).collect::<Vec<_>>());
        out::line(&page);
        if !args.print && start_browser(&page).await {
            say("it is shown in a browser");
        }
        Ok(Exit::Success)
    })
}

/// The dashboard, signed in: what follows `#` never leaves the browser.
fn page(client: &Client, path: &[&str]) -> String {
    let address = client.address(path);
    client.key().map_or(address.clone(), |key| format!("{address}#key={key}"))
}

/// Other people of the machine see how programs are called, so the browser is told the address by a file.
async fn start_browser(page: &str) -> bool {
    if !has_screen() {
        return false;
    }
    let Ok(mut file) = tempfile::Builder::new().prefix("hotdesk-").suffix(".html").tempfile() else { return false };
    let page = page.replace('&', "&amp;").replace('"', "&quot;");
    let text = format!("<!doctype html><meta http-equiv=\"refresh\" content=\"0; url={page}\"><title>hotdesk</title>\n");
    if std::io::Write::write_all(&mut file, text.as_bytes()).is_err() {
        return false;
    }
    let mut command = Command::new("xdg-open");
    command.arg(file.path()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let Ok(mut started) = tokio::process::Command::from(command).spawn() else { return false };
    let failed = matches!(tokio::time::timeout(BROWSER_READS, started.wait()).await, Ok(Ok(status)) if !status.success());
    if !failed {
        tokio::time::sleep(BROWSER_READS).await;
    }
    !failed
}

fn has_screen() -> bool {
    std::env::var_os("DISPLAY").is_some() || std::env::var_os("WAYLAND_DISPLAY").is_some()
}

fn websocket(client: &Client, desk: &str) -> String {
    let path = ["v1", "desks", desk, "view"];
    let address = match client.key() {
        Some(key) => client.address(&[&["k", key][..], &path].concat()),
        None => client.address(&path),
    };
    // http becomes ws, https becomes wss.
    address.replacen("http", "ws", 1)
}

/// Plain VNC on loopback, carried to the desk's live view.
async fn serve(desk: Desk, what: &str, args: &OpenArgs) -> Outcome {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, args.port.unwrap_or(0)))
        .await
        .map_err(|e| Failure::new(Exit::Taken, format!("that port can't be used: {e}")).hint("leave --port out"))?;
    let address = listener.local_addr().map_err(|e| Failure::local(e.to_string()))?;
    out::line(&format!("vnc://{address}"));
    let viewer = if args.print { None } else { start_viewer(address.port()) };
    match &viewer {
        Some(_) => say(&format!("{what} is shown; Ctrl-C ends it")),
        None => say(&format!("point a VNC viewer at it to see {what}; Ctrl-C ends it")),
    }
    let closed = async {
        match viewer {
            Some(mut viewer) => drop(viewer.wait().await),
            None => std::future::pending().await,
        }
    };
    let accept = async {
        loop {
            if let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(carry(stream, desk.clone()));
            }
        }
    };
    tokio::select! {
        () = closed => {}
        () = accept => {}
        _ = tokio::signal::ctrl_c() => {}
    }
    Ok(Exit::Success)
}

fn start_viewer(port: u16) -> Option<tokio::process::Child> {
    if !has_screen() {
        return None;
    }
    VIEWERS.iter().find_map(|program| {
        let mut command = Command::new(program);
        command.arg(format!("127.0.0.1::{port}")).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        tokio::process::Command::from(command).kill_on_drop(true).spawn().ok()
    })
}

async fn carry(stream: TcpStream, desk: Desk) {
    let _ = stream.set_nodelay(true);
    let (mut input, mut output) = match desk.view().await {
        Ok(view) => view,
        Err(error) => return say(&format!("warning: {}", crate::text::safe(&error.to_string()))),
    };
    let (mut from, mut to) = stream.into_split();
    let up = async {
        let mut piece = vec![0; PIECE];
        while let Ok(length @ 1..) = from.read(&mut piece).await {
            if input.write(piece[..length].to_vec().into()).await.is_err() {
                break;
            }
        }
    };
    let down = async {
        while let Ok(Some(piece)) = output.next().await {
            if to.write_all(&piece).await.is_err() {
                break;
            }
        }
    };
    // Either side may leave; then the other has nothing to say.
    tokio::select! {
        () = up => {}
        () = down => {}
    }
}
