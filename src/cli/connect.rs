//! `dshd connect`: joins stdin and stdout with the daemon.

use clap::Args;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::output::stdout_failed;
use super::reach::{self, Start};
use super::{Failure, Globals, exit};

/// Bytes passed on at once.
const BUFFER_BYTES: usize = 64 * 1024;

/// Arguments of `dshd connect`.
#[derive(Debug, Args)]
#[command(after_long_help = "EXAMPLES:
  dshd connect
  dshd connect --to unix:/run/dshd/dshd.sock
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

fn lost(address: &str, error: &std::io::Error) -> Failure {
    Failure::new(exit::UNREACHABLE, "connection_lost", format!("the connection to {address} ended: {error}"))
        .with_help("dshd status")
}
