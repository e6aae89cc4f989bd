//! `hotdesk forward`: ports of a desk as ports of this machine.

use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::out;
use crate::reach::{self, Reach};
use crate::waiting::say;
use clap::Args;
use futures_util::future::try_join_all;
use hotdesk_client::Desk;
use std::net::{IpAddr, Ipv4Addr};
use tokio::net::{TcpListener, TcpStream};

#[derive(Debug, Args)]
#[command(after_help = "Example: hotdesk forward work 9222 8080:80")]
pub(crate) struct ForwardArgs {
    /// The desk, by id, name or the beginning of either
    desk: String,

    /// A port of the desk, with another port of this machine before it if they should differ; LOCAL 0 is a free one
    #[arg(value_name = "[LOCAL:]PORT", required = true, value_parser = ports)]
    ports: Vec<(u16, u16)>,

    /// The address of this machine to listen on
    #[arg(long, value_name = "ADDRESS", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    bind: IpAddr,

    #[command(flatten)]
    reach: Reach,
}

fn ports(text: &str) -> Result<(u16, u16), String> {
    let (local, port) = text.split_once(':').unwrap_or((text, text));
    match (local.parse(), port.parse()) {
        (Ok(local), Ok(port)) if port != 0 => Ok((local, port)),
        _ => Err("write it like 9222, or 8080:80 for port 80 of the desk at 8080 here".into()),
    }
}

pub(crate) fn run(args: ForwardArgs) -> Exit {
    reach::run(async move {
        let client = args.reach.client()?;
        let desk = reach::desk(&client, &args.desk).await?;
        let desk = client.desk(&desk.id);
        let mut listeners = Vec::new();
        for (local, port) in args.ports {
            let listener = TcpListener::bind((args.bind, local)).await.map_err(|e| {
                Failure::new(Exit::Taken, format!("port {local} of this machine can't be used: {e}"))
                    .hint(format!("choose another one: hotdesk forward {} 0:{port} takes a free one", args.desk))
            })?;
            let address = listener.local_addr().map_err(|e| Failure::local(e.to_string()))?;
            out::line(&format!("{address} -> {}:{port}", desk.id()));
            listeners.push((listener, port));
        }
        let all = try_join_all(listeners.into_iter().map(|(listener, port)| listen(listener, desk.clone(), port)));
        tokio::select! {
            outcome = all => outcome.map(|_| Exit::Success),
            _ = tokio::signal::ctrl_c() => Ok(Exit::Success),
        }
    })
}

async fn listen(listener: TcpListener, desk: Desk, port: u16) -> Outcome<()> {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => drop(tokio::spawn(carry(stream, desk.clone(), port))),
            // Too many open files, most likely: some will be closed.
            Err(e) => {
                say(&format!("warning: a connection was not taken: {e}"));
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
        }
    }
}

async fn carry(mut stream: TcpStream, desk: Desk, port: u16) {
    let _ = stream.set_nodelay(true);
    match desk.port(port).await {
        Ok(mut tunnel) => drop(tokio::io::copy_bidirectional(&mut stream, &mut tunnel).await),
        Err(error) => say(&format!("warning: {}", crate::text::safe(&error.to_string()))),
    }
}

#[cfg(test)]
mod tests {
    use super::ports;

    #[test]
    fn ports_of_both_sides() {
        assert_eq!(ports("9222"), Ok((9222, 9222)));
        assert_eq!(ports("0:80"), Ok((0, 80)));
        assert!(ports("80:0").is_err() && ports("x").is_err() && ports("1:2:3").is_err() && ports("70000").is_err());
    }
}
