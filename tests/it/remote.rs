//! Who comes in from elsewhere: TLS, tokens that end, what a token or an address allows, sockets of a service manager.

mod ceiling;
mod inherited;
mod observe;
mod refused;
mod restarts;
mod tls;

use crate::support::{Daemon, Home};

const ANSWER: &str = r#"{"parts":[{"text":"done"}]}"#;
const CONSENT: (&str, &str) = ("DSHD_TOOLS__ALLOW_UNSANDBOXED_REMOTE", "true");

/// A home with a scripted model, a certificate for these names and a token in `token`.
async fn certified(names: &[&str]) -> Home {
    let home = Home::new();
    home.scripted(&[ANSWER], "");
    let mut init = vec!["tls", "init", "--name"];
    init.extend(names);
    home.run(init).await.expect_code(0);
    create_token(&home, &["test"]).await;
    home
}

/// Makes a token and keeps its secret in a file of its name; the secret.
async fn create_token(home: &Home, arguments: &[&str]) -> String {
    let mut command = vec!["token", "create"];
    command.extend(arguments);
    let made = home.run(command).await.expect_code(0);
    std::fs::write(home.path(arguments[0]), &made.stdout).unwrap();
    made.stdout.trim().to_owned()
}

/// A daemon of a home at an address besides its Unix socket.
fn serve(home: &Home, address: &str) -> Daemon {
    let unix = format!("unix:{}", home.socket().display());
    let mut command = home.dshd(["serve", "--listen", &unix, "--listen", address]);
    command.env(CONSENT.0, CONSENT.1);
    Daemon::spawn(home, command)
}

/// Where a daemon speaks TLS, as `host:port` of its own view.
fn tls_address(home: &Home) -> String {
    let file = home.daemon_file().expect("daemon.json");
    let tls = file.listeners.iter().find_map(|listener| listener.address.strip_prefix("tls:"));
    tls.expect("a TLS listener").to_owned()
}
