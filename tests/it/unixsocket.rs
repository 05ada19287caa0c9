//! The Unix socket: where it is, who may use it, what stands in its way.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use serde_json::json;

use crate::support::{Daemon, Home, Peer, finish};

const ANSWER: &str = r#"{"parts":[{"text":"done"}]}"#;

#[tokio::test]
async fn it_is_private_whatever_the_umask() {
    let daemon = Daemon::scripted(&[ANSWER], "");
    let socket = daemon.home().socket();
    assert_eq!(fs::metadata(&socket).unwrap().mode() & 0o777, 0o600);
    assert_eq!(fs::metadata(socket.parent().unwrap()).unwrap().mode() & 0o777, 0o700);
    let mut peer = daemon.peer().await;
    assert_eq!(peer.prompt("s", "hello").await["status"], "ok");
    peer.take_aside();
    let log = daemon.home().log_path("s");
    assert_eq!(fs::metadata(&log).unwrap().mode() & 0o777, 0o600);
    for directory in log.ancestors().skip(1).take_while(|path| **path != daemon.home().data()) {
        assert_eq!(fs::metadata(directory).unwrap().mode() & 0o777, 0o700, "{}", directory.display());
    }
}

#[tokio::test]
async fn without_a_runtime_directory_it_is_below_the_data() {
    let home = Home::new();
    let mut command = home.dshd(["serve"]);
    command.env_remove("XDG_RUNTIME_DIR");
    let daemon = Daemon::spawn(&home, command);
    let socket = home.data().join("run/dshd.sock");
    assert_eq!(fs::metadata(socket.parent().unwrap()).unwrap().mode() & 0o777, 0o700);
    let mut peer = Peer::unix(&socket).await;
    peer.call("server/ping", json!({})).await;
    peer.finish().await;
    assert!(daemon.stop().await.success());
}

#[tokio::test]
async fn a_path_that_no_client_could_name_is_refused_with_a_remedy() {
    let home = Home::new();
    let long = home.path(&"d".repeat(200));
    let mut command = home.dshd(["serve"]);
    command.env("XDG_RUNTIME_DIR", &long);
    let ran = finish(command, b"").await.expect_code(78);
    assert!(ran.stderr.contains("107") && ran.stderr.contains("--listen unix:"), "{}", ran.stderr);
}

#[tokio::test]
async fn a_file_in_its_place_is_left_alone() {
    let home = Home::new();
    fs::create_dir(home.path("run/dshd")).unwrap();
    fs::write(home.socket(), "precious").unwrap();
    let ran = home.run(["serve"]).await.expect_code(78);
    assert!(ran.stderr.contains("dshd.sock"), "{}", ran.stderr);
    assert_eq!(fs::read_to_string(home.socket()).unwrap(), "precious");
}

#[tokio::test]
async fn a_directory_where_everybody_may_write_is_refused() {
    let home = Home::new();
    let open = home.path("open");
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
    let listen = format!("unix:{}", open.join("s").display());
    let ran = home.run(["serve", "--listen", &listen]).await.expect_code(78);
    assert!(ran.stderr.contains("chmod"), "{}", ran.stderr);
    // Sticky directories such as /tmp keep what is ours ours.
    fs::set_permissions(&open, fs::Permissions::from_mode(0o1777)).unwrap();
    let daemon = Daemon::start_in(&home, ["--listen", &listen]);
    Peer::unix(&open.join("s")).await.finish().await;
    assert!(daemon.stop().await.success());
    assert!(!open.join("s").exists());
}

/// Two daemons with two data directories once stole the path from each other.
#[tokio::test]
async fn a_daemon_with_other_data_cannot_have_its_path() {
    let daemon = Daemon::scripted(&[ANSWER], "");
    let listen = format!("unix:{}", daemon.home().socket().display());
    let mut command = daemon.home().dshd(["serve", "--listen", &listen]);
    command.env("DSHD_DATA_DIR", daemon.home().path("other"));
    let ran = finish(command, b"").await.expect_code(75);
    assert!(ran.stderr.contains(&daemon.pid().to_string()), "{}", ran.stderr);
    daemon.peer().await.finish().await;
}
