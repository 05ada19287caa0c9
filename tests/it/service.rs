//! `dshd doctor` and `dshd service`: what an administrator sees and gets.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;

use serde_json::Value;

use crate::model_server::chat;
use crate::stage::{Stage, leave};
use crate::support::{Daemon, Home, Ran, finish, within};

/// The only check of this name.
#[track_caller]
fn check<'a>(report: &'a Value, name: &str) -> &'a Value {
    let checks = report["checks"].as_array().unwrap();
    let mut found = checks.iter().filter(|check| check["name"] == name);
    let check = found.next().unwrap_or_else(|| panic!("no {name} in {report}"));
    assert!(found.next().is_none(), "{name} twice in {report}");
    check
}

#[track_caller]
fn expect(report: &Value, name: &str, status: &str, text: &str) {
    let check = check(report, name);
    assert_eq!(check["status"], status, "{check}");
    assert!(check["text"].as_str().unwrap().contains(text), "{check}");
    assert_eq!(check.get("help").is_some(), status != "ok", "{check}");
}

async fn doctor(home: &Home, args: &[&str]) -> Value {
    let ran = home.run([&["doctor", "--json"], args].concat()).await;
    let report = ran.json();
    assert_eq!(report["schema"], "dshd.doctor/1");
    let failed = report["failures"].as_u64().unwrap() > 0;
    assert_eq!(ran.code, i32::from(failed), "{report}");
    report
}

#[tokio::test]
async fn a_healthy_daemon_passes_and_the_last_line_counts() {
    let stage = Stage::new().await;
    stage.model.push(chat::reply(&["ok"]));
    let home = &stage.home;
    fs::set_permissions(home.data(), fs::Permissions::from_mode(0o700)).unwrap();
    let report = doctor(home, &[]).await;
    for name in
        ["config", "data", "space", "lock", "socket", "daemon", "model", "credentials", "limits", "clock"]
    {
        assert_eq!(check(&report, name)["status"], "ok", "{report}");
    }
    expect(&report, "lock", "ok", &stage.daemon().pid().to_string());
    expect(&report, "daemon", "ok", "ready");
    expect(&report, "model", "ok", "fake/m answers");
    let text = home.run(["doctor", "--offline"]).await.expect_code(0).stdout;
    let last = text.lines().last().unwrap();
    assert!(last.contains(" ok, ") && last.ends_with("0 failures"), "{text}");
    assert!(text.starts_with("ok    config"), "{text}");
    assert!(!text.contains("fake/m"), "{text}");
}

#[tokio::test]
async fn a_model_that_refuses_the_key_is_a_failure_with_a_remedy() {
    let stage = Stage::with("max_retries = 0", "").await;
    stage.model.push(crate::model_server::Reply::status(401));
    let report = doctor(&stage.home, &[]).await;
    expect(&report, "model", "fail", "the key was refused (401)");
}

#[tokio::test]
async fn what_is_loose_is_told_and_mended_when_asked() {
    let home = Home::new();
    let key = home.path("key");
    fs::write(&key, "sk-test").unwrap();
    for (path, mode) in [(&home.data(), 0o755), (&key, 0o644)] {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    home.configure(&format!("[providers.openai]\napi_key_file = \"{}\"\n", key.display()));
    fs::create_dir_all(home.path("run/dshd")).unwrap();
    drop(UnixListener::bind(home.socket()).unwrap());
    let report = doctor(&home, &["--offline"]).await;
    expect(&report, "data", "warn", "mode 0755");
    expect(&report, "credentials", "fail", "mode 0644");
    expect(&report, "socket", "warn", "is stale");
    assert!(home.socket().exists());

    let report = doctor(&home, &["--offline", "--fix"]).await;
    for name in ["data", "credentials", "socket"] {
        assert_eq!(check(&report, name)["status"], "ok", "{report}");
    }
    assert!(!home.socket().exists());
    assert_eq!(fs::metadata(home.data()).unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
    expect(&doctor(&home, &["--offline"]).await, "socket", "ok", "is free");
}

#[tokio::test]
async fn a_socket_that_is_served_is_left_alone_and_a_wrong_key_is_one_line() {
    let daemon = Daemon::start();
    let home = daemon.home();
    expect(&doctor(home, &["--offline", "--fix"]).await, "socket", "ok", "is served");
    assert!(home.socket().exists());
    home.configure("[limits]\nmailbox = 0\n");
    let report = doctor(home, &["--offline"]).await;
    expect(&report, "config", "fail", "`limits.mailbox`: at least 1, got 0");
}

/// The service manager of this test is a socket that notes what the daemon tells it.
#[tokio::test]
async fn the_service_manager_hears_of_readiness_life_reload_and_the_end() {
    let home = Home::new();
    let manager = tokio::net::UnixDatagram::bind(home.path("notify")).unwrap();
    let mut command = home.dshd(["serve"]);
    command.env("NOTIFY_SOCKET", home.path("notify")).env("WATCHDOG_USEC", "60000000");
    let daemon = Daemon::spawn(&home, command);
    let heard = async |expected: &str| {
        let mut said = [0; 512];
        loop {
            let length = within(expected, manager.recv(&mut said)).await.unwrap();
            let text = String::from_utf8_lossy(&said[..length]);
            if text.lines().any(|line| line == expected) {
                return;
            }
            assert!(text.contains("WATCHDOG=1"), "{text} before {expected}");
        }
    };
    heard("READY=1").await;
    // Twice: the second follows answers to what the first look has asked.
    heard("WATCHDOG=1").await;
    heard("WATCHDOG=1").await;
    let reloaded = home.path("home/.config/dshd/dshd.toml");
    fs::write(reloaded, "[log]\nlevel = \"info\"\n").unwrap();
    daemon.signal(rustix::process::Signal::HUP);
    daemon.wait_for_line("the configuration was read again");
    daemon.signal(rustix::process::Signal::TERM);
    heard("STOPPING=1").await;
}

/// The key of this stage is in a file outside of the data, and must stay there.
#[tokio::test]
async fn a_key_is_in_no_log_no_event_and_no_environment_of_a_tool() {
    let mut stage = Stage::with("", "[log]\nlevel = \"trace\"").await;
    stage.runs("env; tr '\\0' '\\n' < /proc/$PPID/environ");
    stage.says(&["done"]);
    let mut peer = stage.peer().await;
    assert_eq!(peer.prompt("s", "hello").await["status"], "ok");
    let told = format!("{:?}", peer.take_aside());
    leave(peer).await;
    assert!(told.contains("PATH="), "the tool has run: {told}");
    let asked = stage.model.requests();
    assert!(asked[0].header("authorization").unwrap().ends_with("sk-test"));
    let said = stage.daemon().stderr();
    stage.stop().await;
    let mut texts = vec![told, said];
    let mut open = vec![stage.home.data()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else {
                texts.push(String::from_utf8_lossy(&fs::read(path).unwrap()).into_owned());
            }
        }
    }
    assert!(texts.iter().any(|text| text.contains("turn/end")), "the logs were looked at");
    assert!(texts.iter().all(|text| !text.contains("sk-test")));
}

/// A stand-in for systemd's commands, which notes how it was called.
fn with_systemctl(home: &Home, args: &[&str]) -> tokio::process::Command {
    let bin = home.path("bin");
    fs::create_dir_all(&bin).unwrap();
    for name in ["systemctl", "journalctl"] {
        let script = format!("#!/bin/sh\necho \"{name} $*\" >> {}\n", home.path("calls").display());
        fs::write(bin.join(name), script).unwrap();
        fs::set_permissions(bin.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    let mut command = home.dshd(args);
    command.env("PATH", format!("{}:/usr/bin:/bin", bin.display()));
    command
}

async fn service(home: &Home, args: &[&str]) -> Ran {
    finish(with_systemctl(home, &[&["service"], args].concat()), b"").await
}

#[tokio::test]
async fn a_users_service_is_installed_and_removed_and_each_act_is_said() {
    let home = Home::new();
    let units = home.path("home/.config/systemd/user");
    let dry = service(&home, &["install", "--user", "--enable", "--dry-run"]).await.expect_code(0).stdout;
    assert!(dry.lines().all(|line| line.starts_with("would ")), "{dry}");
    assert!(!units.exists() && !home.path("calls").exists());

    let said = service(&home, &["install", "--user", "--enable"]).await.expect_code(0).stdout;
    assert_eq!(said, dry.replace("would ", ""));
    let unit = fs::read_to_string(units.join("dshd.service")).unwrap();
    assert!(unit.contains(&format!("\nExecStart={} serve\n", env!("CARGO_BIN_EXE_dshd"))), "{unit}");
    assert_eq!(
        fs::read_to_string(home.path("calls")).unwrap(),
        "systemctl --user daemon-reload\nsystemctl --user enable --now dshd.socket\n"
    );

    let told = service(&home, &["uninstall", "--user", "--json"]).await.expect_code(0).json();
    assert_eq!(told["removed"].as_array().unwrap().len(), 2, "{told}");
    assert_eq!(fs::read_dir(&units).unwrap().count(), 0);
    let ran = service(&home, &["uninstall", "--user"]).await.expect_code(1);
    assert!(ran.stderr.contains("no service of dshd is installed"), "{}", ran.stderr);
    service(&home, &["status", "--user"]).await.expect_code(0);
    service(&home, &["logs", "--user", "-f", "-n", "5"]).await.expect_code(0);
    let calls = fs::read_to_string(home.path("calls")).unwrap();
    assert!(calls.contains("systemctl --user --no-pager status dshd.service dshd.socket\n"), "{calls}");
    assert!(
        calls.ends_with("journalctl --user-unit dshd.service --no-pager --lines=5 --follow\n"),
        "{calls}"
    );
}
