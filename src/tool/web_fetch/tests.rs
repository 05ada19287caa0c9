//! What `web_fetch` refuses. What it fetches is in `tests/it/web_fetch.rs`, over real sockets.

use serde_json::json;

use super::*;
use crate::tool::search::bench::{Bench, bench, bench_with};

fn offering() -> Bench {
    bench_with(|config| config.tools.web_fetch = true)
}

#[tokio::test]
async fn it_is_not_there_unless_it_is_configured() {
    assert!(bench().tools.get(NAME).is_none());
    assert!(offering().tools.get(NAME).is_some());
}

#[tokio::test]
async fn what_is_not_on_the_public_web_is_refused_before_anything_is_sent() {
    let bench = offering();
    for (url, reason) in [
        ("file:///etc/passwd", "expected http or https, got file"),
        ("ftp://example.org/", "expected http or https, got ftp"),
        ("example.org", "no URL: relative URL without a base"),
        ("http://user:secret@example.org/", "a URL with a user or a password is not fetched"),
        ("http://127.0.0.1/", "127.0.0.1 is no address of the public internet"),
        ("http://127.1:8080/", "127.0.0.1 is no address of the public internet"),
        ("http://0x7f000001/", "127.0.0.1 is no address of the public internet"),
        ("http://2130706433/", "127.0.0.1 is no address of the public internet"),
        ("http://[::1]/", "::1 is no address of the public internet"),
        ("http://[::ffff:10.0.0.1]/", "::ffff:10.0.0.1 is no address of the public internet"),
        ("http://169.254.169.254/latest/meta-data/", "169.254.169.254 is no address of the public internet"),
    ] {
        let output = bench.call(NAME, json!({ "url": url })).await;
        assert_eq!(output.text, format!("Error: invalid arguments for web_fetch: `url`: {reason}"), "{url}");
        assert_eq!(output.error.unwrap().code, "INVALID_ARGS");
    }
}

#[tokio::test]
async fn a_name_is_refused_for_the_address_that_it_has() {
    let bench = offering();
    let output = bench.call(NAME, json!({ "url": "http://localhost:9/" })).await;
    assert!(output.is_error);
    assert!(output.text.contains("is no address of the public internet"), "{}", output.text);
}
