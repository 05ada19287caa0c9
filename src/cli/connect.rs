//! `dshd connect`: joins stdin and stdout with the daemon.

use clap::Args;
use serde::Deserialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use zeroize::Zeroizing;

use super::discover::Target;
use super::output::stdout_failed;
use super::reach::{self, ANSWER_TIMEOUT, Start};
use super::{Failure, Globals, exit, refusal};
use crate::client::{CallError, RpcError, Stream};
use crate::protocol::{AuthenticateParams, Method};

/// Bytes passed on at once.
const BUFFER_BYTES: usize = 64 * 1024;

/// The reply to a token is short, in bytes.
const REPLY_BYTES_MAX: usize = 8 * 1024;

/// Arguments of `dshd connect`.
#[derive(Debug, Args)]
#[command(after_long_help = "EXAMPLES:
  dshd connect
  dshd connect --to unix:/run/dshd/dshd.sock
  dshd connect --to tls:build.example.org:7433 --ca ca.pem --token-file laptop.token
  ssh host dshd connect")]
pub struct ConnectArgs {
    /// The address, as --connect
    #[arg(long, value_name = "ADDR")]
    pub to: Option<String>,
    /// Never start a daemon [env: DSHD_AUTOSTART=0] [config: client.autostart]
    #[arg(long)]
    pub no_autostart: bool,
}

pub(super) async fn run(args: ConnectArgs, globals: &Globals) -> Result<u8, Failure> {
    let mut globals = globals.clone();
    if args.to.is_some() {
        globals.args.connect = args.to;
    }
    let loaded = globals.load()?;
    let start = Start::allowed(args.no_autostart, &globals, &loaded);
    let (target, mut stream) = reach::stream(&globals, &loaded, start).await?;
    if target.address.needs_token()
        && let Some(token) = reach::token(&globals)?
    {
        let said = tokio::time::timeout(ANSWER_TIMEOUT, authenticate(&mut stream, &token, &target)).await;
        said.unwrap_or_else(|_| Err(refusal::call(&target, CallError::TimedOut(ANSWER_TIMEOUT))))?;
    }
    let up = async {
        let sent = tokio::io::copy(&mut tokio::io::stdin(), &mut stream.writer).await;
        // A daemon that has closed its side says why in what it sends, which goes to stdout.
        sent.and(stream.writer.shutdown().await)
    };
    let mut stdout = tokio::io::stdout();
    let down = async {
        let mut buffer = vec![0; BUFFER_BYTES];
        loop {
            let read = stream.reader.read(&mut buffer).await;
            let read = read.map_err(|error| lost(&target.address.to_string(), &error))?;
            if read == 0 {
                return Ok(exit::OK);
            }
            stdout.write_all(&buffer[..read]).await.map_err(stdout_failed)?;
            stdout.flush().await.map_err(stdout_failed)?;
        }
    };
    tokio::pin!(up, down);
    tokio::select! {
        ended = &mut down => return ended,
        sent = &mut up => {
            if let Err(error) = sent {
                tracing::debug!(%error, "nothing more can be sent");
            }
        }
    }
    // stdin has ended; what is in flight is still answered.
    down.await
}

#[derive(Deserialize)]
struct Reply {
    error: Option<Refused>,
}

#[derive(Deserialize)]
struct Refused {
    code: i64,
    message: String,
}

/// Shows the token, which must be the first request; whoever is behind us need not know it. What comes after the reply is
/// theirs.
async fn authenticate(stream: &mut Stream, token: &str, target: &Target) -> Result<(), Failure> {
    let failed = |error: std::io::Error| lost(&target.address.to_string(), &error);
    let params = AuthenticateParams { token: token.to_owned() };
    let params = serde_json::to_string(&params).map(Zeroizing::new).unwrap_or_default();
    let line = Zeroizing::new(format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":\"dshd-connect\",\"method\":\"{}\",\"params\":{}}}\n",
        Method::Authenticate.name(),
        *params
    ));
    stream.writer.write_all(line.as_bytes()).await.map_err(failed)?;
    stream.writer.flush().await.map_err(failed)?;
    let mut reply = Vec::new();
    loop {
        match stream.reader.read_u8().await.map_err(failed)? {
            b'\n' => break,
            byte if reply.len() < REPLY_BYTES_MAX => reply.push(byte),
            _ => break,
        }
    }
    match serde_json::from_slice(&reply) {
        Ok(Reply { error: None }) => Ok(()),
        Ok(Reply { error: Some(Refused { code, message }) }) => {
            let kind = "unauthenticated".to_owned();
            Err(refusal::rpc(target, &RpcError { code, kind, message, data: None }))
        }
        Err(_) => {
            let got = String::from_utf8_lossy(&reply[..reply.len().min(40)]).into_owned();
            Err(refusal::call(target, CallError::NotDshd { got }))
        }
    }
}

fn lost(address: &str, error: &std::io::Error) -> Failure {
    Failure::new(exit::UNREACHABLE, "connection_lost", format!("the connection to {address} ended: {error}"))
        .with_help("dshd status")
}
