//! What a request gets.

use std::net::IpAddr;

use hyper::header::{CONTENT_TYPE, HOST, HeaderMap, HeaderValue, ORIGIN};
use hyper::{Method, Request, Response, StatusCode};

use super::text;
use crate::handler::shared::Shared;
use crate::protocol::Phase;

const PLAIN: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
const OPEN_METRICS: HeaderValue =
    HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");

/// Answers a request, whose body is not read.
pub(super) fn to<B>(request: &Request<B>, shared: &Shared) -> Response<String> {
    if let Err(reason) = check(request.headers()) {
        return plain(StatusCode::FORBIDDEN, reason);
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return plain(StatusCode::METHOD_NOT_ALLOWED, "only GET");
    }
    match request.uri().path() {
        "/healthz" => plain(StatusCode::OK, "ok"),
        "/readyz" => match unready(shared) {
            None => plain(StatusCode::OK, "ready"),
            Some(reason) => plain(StatusCode::SERVICE_UNAVAILABLE, &reason),
        },
        "/metrics" => match text::of(shared) {
            Ok(text) => respond(StatusCode::OK, OPEN_METRICS, text),
            Err(error) => plain(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
        },
        _ => plain(StatusCode::NOT_FOUND, "there are /healthz, /readyz and /metrics"),
    }
}

/// Why no prompt is taken, if so.
fn unready(shared: &Shared) -> Option<String> {
    if shared.phase.borrow().wire() != Phase::Ready {
        return Some("draining".to_owned());
    }
    let failed = shared.runtime.storage_failure().map(|reason| format!("storage failed: {reason}"));
    failed.or_else(|| shared.runtime.no_room())
}

/// A page of the web that had its name point here would send that name, and any page its origin.
fn check(headers: &HeaderMap) -> Result<(), &'static str> {
    if headers.contains_key(ORIGIN) {
        return Err("not for browsers");
    }
    let mut hosts = headers.get_all(HOST).iter();
    let host = hosts.next().and_then(|host| host.to_str().ok());
    match host {
        Some(host) if hosts.next().is_none() && is_loopback(host) => Ok(()),
        Some(_) | None => Err("the Host header names no loopback address"),
    }
}

fn is_loopback(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((name, port)) if is_port(port) => name,
            Some(_) | None => return false,
        },
        None => match host.split_once(':') {
            Some((name, _)) if is_port(&host[name.len()..]) => name,
            Some(_) => return false,
            None => host,
        },
    };
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// Nothing, or `:` and a number.
fn is_port(text: &str) -> bool {
    text.is_empty() || text.strip_prefix(':').is_some_and(|port| port.parse::<u16>().is_ok())
}

fn plain(status: StatusCode, text: &str) -> Response<String> {
    respond(status, PLAIN, format!("{text}\n"))
}

fn respond(status: StatusCode, kind: HeaderValue, text: String) -> Response<String> {
    let mut response = Response::new(text);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_of_this_machine_by_its_loopback_name_or_address_alone() {
        for host in ["localhost", "LOCALHOST:9464", "127.0.0.1:9464", "127.8.0.1", "[::1]", "[::1]:9464"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.nip.io",
            "10.0.0.1:9464",
            "[::2]",
            "::1",
        ] {
            assert!(!is_loopback(host), "{host}");
        }
        for host in ["127.0.0.1:x", "[::1", "localhost:99999", "[::1]x", "127.0.0.1@evil.example"] {
            assert!(!is_loopback(host), "{host}");
        }
    }

    #[track_caller]
    fn check_headers(headers: &[(hyper::header::HeaderName, &'static str)], allowed: bool) {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(name, HeaderValue::from_static(value));
        }
        assert_eq!(check(&map).is_ok(), allowed, "{headers:?}");
    }

    #[test]
    fn a_browser_and_a_name_that_was_made_to_point_here_are_refused() {
        check_headers(&[(HOST, "127.0.0.1:9464")], true);
        check_headers(&[(HOST, "evil.example")], false);
        check_headers(&[], false);
        check_headers(&[(HOST, "localhost"), (HOST, "evil.example")], false);
        check_headers(&[(HOST, "localhost"), (ORIGIN, "http://localhost")], false);
        check_headers(&[(HOST, "localhost"), (ORIGIN, "null")], false);
    }
}
