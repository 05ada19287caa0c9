//! Plays the conversation that docs/protocol.md shows under "By hand" against the program.
//!
//! `> ` is sent, `< ` must come, `…` stands for anything within a line, and a line of its own, `< …`, for any lines.

use std::path::Path;

use crate::support::Daemon;

/// Whether a line is what the page says.
fn fits(line: &str, pattern: &str) -> bool {
    let mut parts = pattern.split('…');
    let Some(mut rest) = parts.next().and_then(|head| line.strip_prefix(head)) else { return false };
    let Some(tail) = parts.next_back() else { return rest.is_empty() };
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(tail)
}

#[test]
fn a_pattern_leaves_out_what_it_says() {
    for (line, pattern, expected) in [
        ("abc", "abc", true),
        ("abc", "ab", false),
        ("abc", "a…c", true),
        ("abc", "a…", true),
        ("abc", "…", true),
        ("abc", "a…b", false),
        ("abc", "x…", false),
        ("abcbc", "a…c", true),
    ] {
        assert_eq!(fits(line, pattern), expected, "{line} {pattern}");
    }
}

#[tokio::test]
async fn the_conversation_by_hand_goes_as_the_page_says() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/protocol.md");
    let page = std::fs::read_to_string(page).unwrap();
    let section = page.split("\n## By hand\n").nth(1).expect("the section").split("\n## ").next().unwrap();
    let daemon = Daemon::start();
    let work = daemon.home().work();
    let mut peer = daemon.connect().await;
    let mut skipping = false;
    let mut played = 0;
    for line in section.lines() {
        let line = line.replace("/home/me/project", work.to_str().unwrap());
        if let Some(request) = line.strip_prefix("> ") {
            peer.send_line(request).await;
        } else if line == "< …" {
            skipping = true;
        } else if let Some(pattern) = line.strip_prefix("< ") {
            loop {
                let Some(came) = peer.line().await else { panic!("closed before {pattern}") };
                if fits(&came, pattern) {
                    break;
                }
                assert!(skipping, "the page says\n  {pattern}\nand the daemon\n  {came}");
            }
            skipping = false;
            played += 1;
        }
    }
    assert!(played > 5, "{played}");
    peer.expect_eof().await;
}
