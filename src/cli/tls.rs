//! `dshd tls`: the certificate of TLS addresses, by a CA of one's own.

mod issue;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use jiff::Timestamp;
use serde::Serialize;

use self::issue::{IssueError, Shelf, read_certificate};
use super::{Failure, Globals, exit, output};
use crate::auth::certificate::Certificate;
use crate::telemetry;

/// The port that examples name.
const PORT: u16 = 7433;

/// Arguments of `dshd tls`.
#[derive(Debug, Args)]
#[command(after_long_help = "EXAMPLES:
  dshd tls init --name build.example.org
  dshd tls fingerprint
  dshd tls renew && systemctl reload dshd")]
pub struct TlsArgs {
    /// What to do
    #[command(subcommand)]
    pub action: TlsAction,
}

/// What to do with certificates.
#[derive(Debug, Subcommand)]
pub enum TlsAction {
    /// Make a CA and the daemon's certificate
    Init {
        /// Names and addresses by which clients reach the daemon; this machine's own are added
        #[arg(long, required = true, num_args = 1.., value_name = "HOST")]
        name: Vec<String>,
        /// Where
        #[command(flatten)]
        place: Place,
    },
    /// Say what certificate there is and how clients use it
    Show {
        /// Where
        #[command(flatten)]
        place: Place,
    },
    /// Make the daemon's certificate anew, by the same CA; a running daemon takes it at SIGHUP
    Renew {
        /// Other names than it has
        #[arg(long, num_args = 1.., value_name = "HOST")]
        name: Vec<String>,
        /// With a new key; pins of the old one are void then
        #[arg(long)]
        new_key: bool,
        /// Where
        #[command(flatten)]
        place: Place,
    },
    /// Print the public key's fingerprint, for --pin
    Fingerprint {
        /// That of the CA, which stays when the daemon's key changes
        #[arg(long)]
        of_ca: bool,
        /// Where
        #[command(flatten)]
        place: Place,
    },
    /// Make a certificate for a client, where an address of the daemon asks for one (client_ca)
    Client {
        /// The client's name
        #[arg(value_name = "NAME")]
        client: String,
        /// Where
        #[command(flatten)]
        place: Place,
    },
}

/// Where certificates are.
#[derive(Debug, Args)]
pub struct Place {
    /// Directory of the certificates; without it tls/ in the data directory
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
}

pub(super) fn run(args: TlsArgs, globals: &Globals) -> Result<u8, Failure> {
    match args.action {
        TlsAction::Init { name, place } => {
            let shelf = place.shelf(globals)?;
            shelf.init(&name)?;
            show(&shelf, globals)
        }
        TlsAction::Show { place } => show(&place.shelf(globals)?, globals),
        TlsAction::Renew { name, new_key, place } => {
            let shelf = place.shelf(globals)?;
            shelf.renew(&name, new_key)?;
            if !globals.args.quiet {
                telemetry::say("a running daemon takes it at SIGHUP (systemctl reload dshd, or kill -HUP)");
            }
            show(&shelf, globals)
        }
        TlsAction::Fingerprint { of_ca, place } => {
            let shelf = place.shelf(globals)?;
            let path = if of_ca { shelf.ca() } else { shelf.server() };
            fingerprint(&path, globals)
        }
        TlsAction::Client { client, place } => make_client(&place.shelf(globals)?, &client, globals),
    }
}

impl Place {
    fn shelf(&self, globals: &Globals) -> Result<Shelf, Failure> {
        Ok(Shelf(match &self.dir {
            Some(dir) => globals.environment.cwd().join(dir),
            None => globals.load()?.paths.data_dir.join("tls"),
        }))
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Document<'a> {
    schema: &'static str,
    cert: &'a Path,
    key: &'a Path,
    ca: &'a Path,
    names: &'a [String],
    not_before: String,
    not_after: String,
    expired: bool,
    fingerprint: String,
    ca_fingerprint: String,
}

fn show(shelf: &Shelf, globals: &Globals) -> Result<u8, Failure> {
    let (server, ca) = (read_certificate(&shelf.server())?, read_certificate(&shelf.ca())?);
    if globals.args.json {
        output::print_json(&Document {
            schema: "dshd.tls/1",
            cert: &shelf.server(),
            key: &shelf.server_key(),
            ca: &shelf.ca(),
            names: &server.names,
            not_before: iso(server.not_before),
            not_after: iso(server.not_after),
            expired: server.not_after <= Timestamp::now(),
            fingerprint: server.pin.to_string(),
            ca_fingerprint: ca.pin.to_string(),
        })?;
    } else {
        output::print(&page(shelf, &server, &ca))?;
    }
    Ok(exit::OK)
}

fn iso(time: Timestamp) -> String {
    format!("{time:.3}")
}

/// What there is, the lines of the configuration, and the command of a client.
fn page(shelf: &Shelf, server: &Certificate, ca: &Certificate) -> String {
    let host = server.names.first().map_or("HOST", String::as_str);
    let address = if host.contains(':') { format!("[{host}]:{PORT}") } else { format!("{host}:{PORT}") };
    let (cert, key) = (shelf.server(), shelf.server_key());
    let ca_file = shelf.ca();
    let end = if server.not_after <= Timestamp::now() { "expired" } else { "good until" };
    let mut text = String::new();
    // Writing to a text cannot fail.
    let _ = write!(
        text,
        "certificate {}\n  names       {}\n  {end:11} {}\n  fingerprint {}\nCA {}\n  good until  {}\n  fingerprint {}\n\n\
         serve it by these lines in dshd.toml:\n  [[listen]]\n  tcp = \"0.0.0.0:{PORT}\"\n  tls = {{ cert = \"{}\", key = \
         \"{}\" }}\n\ncome in from elsewhere with a token, by a copy of the CA or by its fingerprint:\n  dshd connect --to \
         tls:{address} --ca {} --token-file NAME.token\n  dshd connect --to tls:{address} --pin {} --token-file NAME.token\n",
        cert.display(),
        server.names.join(", "),
        iso(server.not_after),
        server.pin,
        ca_file.display(),
        iso(ca.not_after),
        ca.pin,
        cert.display(),
        key.display(),
        ca_file.display(),
        ca.pin,
    );
    text
}

#[derive(Serialize)]
struct FingerprintDocument {
    schema: &'static str,
    fingerprint: String,
}

fn fingerprint(path: &Path, globals: &Globals) -> Result<u8, Failure> {
    let fingerprint = read_certificate(path)?.pin.to_string();
    if globals.args.json {
        output::print_json(&FingerprintDocument { schema: "dshd.tlsFingerprint/1", fingerprint })?;
    } else {
        output::print(&format!("{fingerprint}\n"))?;
    }
    Ok(exit::OK)
}

#[derive(Serialize)]
struct ClientDocument<'a> {
    schema: &'static str,
    cert: &'a Path,
    key: &'a Path,
}

fn make_client(shelf: &Shelf, name: &str, globals: &Globals) -> Result<u8, Failure> {
    let (cert, key) = shelf.client(name)?;
    if globals.args.json {
        output::print_json(&ClientDocument { schema: "dshd.tlsClient/1", cert: &cert, key: &key })?;
    } else {
        output::print(&format!("[client]\ncert = \"{}\"\nkey = \"{}\"\n", cert.display(), key.display()))?;
    }
    Ok(exit::OK)
}

impl From<IssueError> for Failure {
    fn from(error: IssueError) -> Self {
        let message = error.to_string();
        match error {
            IssueError::Exists(_) => Self::new(exit::REFUSED, "exists", message).with_help(
                "dshd tls renew makes a new certificate by the same CA; remove the files to begin anew",
            ),
            IssueError::File { doing: "read", .. } => {
                Self::new(exit::REFUSED, "no_certificate", message).with_help("dshd tls init --name HOST")
            }
            IssueError::File { .. } => Self::new(exit::STORAGE, "io", message),
            IssueError::Name(_) => Self::usage(message).with_help("dshd tls init --name build.example.org"),
            IssueError::OtherCa(_) => Self::new(exit::REFUSED, "other_ca", message)
                .with_help("renew it as its CA does, or remove the files and dshd tls init"),
            IssueError::Failed(_) => Self::new(exit::REFUSED, "tls", message),
        }
    }
}
