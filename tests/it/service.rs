//! `dshd doctor` and `dshd service`: what an administrator sees and gets.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;

use serde_json::Value;

use crate::model_server::chat;
use crate::stage::Stage;
use crate::support::{Daemon, Home, Ran, finish};

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
    expect(&report, "credentials", "warn", "mode 0644");
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
