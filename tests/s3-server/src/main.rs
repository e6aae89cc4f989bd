//! `hotdesk-test-s3 DIRECTORY ACCESS_KEY SECRET_KEY`: an S3 server on a free loopback port. Buckets are the folders of DIRECTORY.
//!
//! Prints its address, then serves until it is killed. `scripts/s3` starts and stops it.

#![allow(clippy::print_stdout, reason = "its address is this program's output")]

use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use s3s::auth::SimpleAuth;
use s3s::service::S3ServiceBuilder;
use s3s_fs::FileSystem;
use std::error::Error;
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let [directory, access_key, secret_key] = <[String; 3]>::try_from(std::env::args().skip(1).collect::<Vec<_>>())
        .map_err(|_| "usage: hotdesk-test-s3 DIRECTORY ACCESS_KEY SECRET_KEY")?;
    let files = FileSystem::new(directory).map_err(|e| format!("{e:?}"))?;
    let mut builder = S3ServiceBuilder::new(files);
    builder.set_auth(SimpleAuth::from_single(access_key, secret_key));
    let service = builder.build();

    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("http://{}", listener.local_addr()?);
    loop {
        let (socket, _) = listener.accept().await?;
        let connection = http1::Builder::new().timer(TokioTimer::new()).serve_connection(TokioIo::new(socket), service.clone());
        tokio::spawn(connection);
    }
}
