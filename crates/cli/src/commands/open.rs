//! `hotdesk open`: the live view of a desk.

use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::out;
use crate::reach::{self, Reach, title};
use crate::waiting::say;
use clap::Args;
use hotdesk_client::{Client, Desk, Target};
use std::net::Ipv4Addr;
use std::process::{Command, Stdio};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// What a viewer sends at once.
const PIECE: usize = 16 * 1024;

/// Viewers that are started if they are there.
const VIEWERS: [&str; 5] = ["vncviewer", "xtigervncviewer", "gvncviewer", "vinagre", "remmina"];

#[derive(Debug, Args)]
pub(crate) struct OpenArgs {
    /// The desk, by id, name or the beginning of either [default: the only one that runs]
    desk: Option<String>,

    /// Only print the address; start no viewer
    #[arg(long)]
    print: bool,

    /// Print the WebSocket that noVNC and other viewers in browsers connect to, and end; it holds the key
    #[arg(long, conflicts_with_all = ["print", "port"])]
    websocket: bool,

    /// The port of this machine that VNC viewers connect to [default: a free one]
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    port: u16,

    #[command(flatten)]
    reach: Reach,
}

pub(crate) fn run(args: OpenArgs) -> Exit {
    reach::run(async move {
        let client = args.reach.client()?;
        let desk = reach::desk_or_only(&client, args.desk.as_deref()).await?;
        if args.websocket {
            return Ok(out::line(&websocket(&client, &desk.id)?));
        }
        let what = title(&desk);
        serve(client.desk(&desk.id), &what, &args).await
    })
}

fn websocket(client: &Client, desk: &str) -> Outcome<String> {
    if matches!(client.target(), Target::Unix(_)) {
        return Err(Failure::usage("browsers can't use a Unix socket").hint("let the fleet listen on a port too"));
    }
    let path = ["v1", "desks", desk, "view"];
    let address = match client.key() {
        Some(key) => client.address(&[&["k", key][..], &path].concat()),
        None => client.address(&path),
    };
    // http becomes ws, https becomes wss.
    Ok(address.replacen("http", "ws", 1))
}

/// Plain VNC on loopback, carried to the desk's live view.
async fn serve(desk: Desk, what: &str, args: &OpenArgs) -> Outcome {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, args.port))
        .await
        .map_err(|e| Failure::new(Exit::Taken, format!("port {} can't be used: {e}", args.port)).hint("leave --port out"))?;
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
    if std::env::var_os("DISPLAY").is_none() && std::env::var_os("WAYLAND_DISPLAY").is_none() {
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
