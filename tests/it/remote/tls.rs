//! TLS: made, served, trusted by a CA or by a key, renewed while it runs; and each way in which it fails.

use std::fs;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};
use rustix::process::Signal;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::{ANSWER, certified, create_token, serve, tls_address};
use crate::strangers::recorded;
use crate::support::{Daemon, Home, Peer, Ran, within};

/// `dshd prompt hi` at an address, with these flags.
async fn prompt(home: &Home, address: &str, flags: &[&str]) -> Ran {
    let token = home.path("test");
    let mut arguments = vec!["prompt", "hi", "--connect", address, "--token-file", token.to_str().unwrap()];
    arguments.extend(flags);
    let mut command = home.dshd(arguments);
    // Nothing of this home's own is trusted by itself.
    command.env("DSHD_DATA_DIR", home.path("elsewhere"));
    crate::support::finish(command, b"").await
}

fn ca(home: &Home) -> String {
    home.data().join("tls/ca.pem").display().to_string()
}

async fn fingerprint(home: &Home, more: &[&str]) -> String {
    let mut arguments = vec!["tls", "fingerprint"];
    arguments.extend(more);
    home.run(arguments).await.expect_code(0).stdout.trim().to_owned()
}

fn port(address: &str) -> &str {
    address.rsplit_once(':').unwrap().1
}

#[tokio::test]
async fn a_client_that_trusts_the_ca_or_a_key_comes_in_with_its_token() {
    let home = certified(&["localhost"]).await;
    let shown = home.run(["tls", "show"]).await.expect_code(0).stdout;
    for line in
        ["[[listen]]", "tls = { cert = ", "dshd connect --to tls:localhost:7433 --ca ", "--pin sha256:"]
    {
        assert!(shown.contains(line), "{shown}");
    }
    home.run(["tls", "init", "--name", "other"]).await.expect_code(1);
    let daemon = serve(&home, "tls:127.0.0.1:0");
    let address = format!("tls:localhost:{}", port(&tls_address(&home)));
    let (leaf, of_ca) = (fingerprint(&home, &[]).await, fingerprint(&home, &["--of-ca"]).await);
    let ca = ca(&home);
    for flags in [["--ca", &ca], ["--pin", &leaf], ["--pin", &of_ca]] {
        let ran = prompt(&home, &address, &flags).await.expect_code(0);
        assert_eq!(ran.stdout.trim(), "done", "{flags:?}");
    }
    let mut connect = home.dshd(["connect", "--to", &address, "--pin", &leaf]);
    connect.env("DSHD_DATA_DIR", home.path("elsewhere"));
    let mut peer = Peer::stdio(connect);
    let secret = fs::read_to_string(home.path("test")).unwrap();
    peer.call("authenticate", json!({ "token": secret.trim() })).await;
    peer.initialize(json!({ "cwd": home.work() })).await;
    peer.finish().await;
    let shown = ["connect", "--to", &address, "--pin", &leaf, "--token-file"];
    let mut connect = home.dshd(shown);
    connect.arg(home.path("test")).env("DSHD_DATA_DIR", home.path("elsewhere"));
    let mut peer = Peer::stdio(connect);
    peer.initialize(json!({ "cwd": home.work() })).await;
    peer.finish().await;
    fs::write(home.path("wrong"), "x".repeat(48)).unwrap();
    let mut connect = home.dshd(shown);
    connect.arg(home.path("wrong")).env("DSHD_DATA_DIR", home.path("elsewhere"));
    let ran = crate::support::finish(connect, b"").await.expect_code(77);
    assert!(ran.stderr.contains("token") && ran.stdout.is_empty(), "{}", ran.stderr);
    let said = daemon.stderr();
    assert!(said.contains("peer=tls:127.0.0.1") || said.contains("tls:127.0.0.1"), "{said}");
    assert!(daemon.stop().await.success());
}

#[tokio::test]
async fn whom_a_client_does_not_trust_is_told_with_what_to_do() {
    let home = certified(&["localhost"]).await;
    let daemon = serve(&home, "tls:127.0.0.2:0");
    let address = format!("tls:{}", tls_address(&home));
    let other = certified(&["localhost"]).await;
    let (leaf, of_ca) = (fingerprint(&home, &[]).await, fingerprint(&home, &["--of-ca"]).await);
    let (ours, theirs) = (ca(&home), ca(&other));
    let foreign = fingerprint(&other, &[]).await;
    let check = async |address: &str, flags: &[&str], code: i32, said: &str| {
        let ran = prompt(&home, address, flags).await.expect_code(code);
        assert!(ran.stderr.contains(said), "{flags:?}: {}", ran.stderr);
        assert!(ran.stderr.contains("help: "), "{}", ran.stderr);
    };
    check(&address, &[], 64, "nothing says which certificate to trust").await;
    check(&address, &["--ca", &ours], 69, "is for localhost, 127.0.0.1, ::1, not for 127.0.0.2").await;
    check(&address, &["--pin", &of_ca], 69, "not for 127.0.0.2").await;
    check(&address, &["--ca", &theirs], 69, "not signed by the CA").await;
    check(&address, &["--pin", &foreign], 69, &format!("public key is {leaf}")).await;
    check(&address, &["--ca", "/there/is/nothing.pem"], 64, "/there/is/nothing.pem").await;
    // The key is the name, whatever it is called.
    prompt(&home, &address, &["--pin", &leaf]).await.expect_code(0);
    assert!(daemon.stop().await.success());
}

#[tokio::test]
async fn what_answers_and_is_no_tls_or_not_ours_is_told() {
    let home = certified(&["localhost"]).await;
    let daemon = serve(&home, "tcp:127.0.0.1:0");
    let plain = format!("tls:{}", daemon.tcp());
    let pin = fingerprint(&home, &[]).await;
    let trusting = ["--pin", pin.as_str()];
    let ran = prompt(&home, &plain, &trusting).await.expect_code(69);
    assert!(ran.stderr.contains("ended the connection during the TLS handshake"), "{}", ran.stderr);

    let web = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("tls:{}", web.local_addr().unwrap());
    let serving = async {
        let (mut stream, _) = web.accept().await.unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
        let _ = stream.read_to_end(&mut Vec::new()).await;
    };
    let (ran, ()) = tokio::join!(prompt(&home, &address, &trusting), within("the web server", serving));
    assert!(ran.expect_code(69).stderr.contains("does not speak TLS"));

    let chain: Vec<_> = CertificateDer::pem_file_iter(home.data().join("tls/server.pem"))
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap();
    let key = PrivateKeyDer::from_pem_file(home.data().join("tls/server.key")).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let other = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("tls:{}", other.local_addr().unwrap());
    let serving = async {
        let (stream, _) = other.accept().await.unwrap();
        if let Ok(mut stream) = acceptor.accept(stream).await {
            let _ = stream.read_to_end(&mut Vec::new()).await;
        }
    };
    let (ran, ()) = tokio::join!(prompt(&home, &address, &trusting), within("another server", serving));
    assert!(ran.expect_code(69).stderr.contains("not the protocol dshd/1"));
    assert!(daemon.stop().await.success());
}

/// TLS without asking for our protocol, or of another version.
async fn handshake(
    home: &Home,
    versions: &[&'static rustls::SupportedProtocolVersion],
    alpn: &[&[u8]],
) -> bool {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(ca(home)).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
    let stream = TcpStream::connect(tls_address(home)).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let connected = within("the handshake", TlsConnector::from(Arc::new(config)).connect(name, stream)).await;
    let Ok(mut stream) = connected else { return false };
    // It is over only when the daemon has answered.
    let _ = stream.write_all(b"{\"id\":1,\"method\":\"authenticate\",\"params\":{\"token\":\"x\"}}\n").await;
    let mut answer = Vec::new();
    let _ = within("the answer", stream.read_to_end(&mut answer)).await;
    String::from_utf8_lossy(&answer).contains("unauthenticated")
}

#[tokio::test]
async fn only_tls_1_3_with_our_protocol_is_spoken_and_others_get_no_byte() {
    let home = certified(&["localhost"]).await;
    let daemon = serve(&home, "tls:127.0.0.1:0");
    let tls13 = &[&rustls::version::TLS13][..];
    assert!(handshake(&home, tls13, &[b"dshd/1"]).await);
    assert!(handshake(&home, tls13, &[b"h2", b"dshd/1"]).await);
    assert!(!handshake(&home, tls13, &[]).await);
    assert!(!handshake(&home, tls13, &[b"h2", b"http/1.1"]).await);
    assert!(!handshake(&home, &[&rustls::version::TLS12], &[b"dshd/1"]).await);
    for (what, bytes) in recorded::all("{}") {
        if what == "TLS" {
            continue;
        }
        let mut peer = Peer::tcp(&tls_address(&home)).await;
        peer.send_bytes(&bytes).await;
        peer.expect_eof().await;
    }
    let mut plain = Peer::tcp(&tls_address(&home)).await;
    plain.send_line(r#"{"id":1,"method":"authenticate","params":{"token":"x"}}"#).await;
    plain.expect_eof().await;
    assert!(daemon.stop().await.success());
}

#[tokio::test]
async fn a_handshake_has_the_time_of_a_stranger_and_no_more() {
    let home = certified(&["localhost"]).await;
    home.scripted(&[ANSWER], "[limits]\npreauth_time = \"300ms\"");
    let daemon = serve(&home, "tls:127.0.0.1:0");
    let mut silent = Peer::tcp(&tls_address(&home)).await;
    let mut begun = Peer::tcp(&tls_address(&home)).await;
    begun.send_bytes(&recorded::CLIENT_HELLO[..100]).await;
    silent.expect_eof().await;
    begun.expect_eof().await;
    assert!(daemon.stop().await.success());
}

async fn reload(daemon: &Daemon, times: usize) {
    daemon.signal(Signal::HUP);
    within("the reload", async {
        while daemon.stderr().matches("the configuration was read again").count() < times {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_renewed_certificate_is_taken_at_a_reload_and_a_bad_one_never() {
    let home = certified(&["localhost"]).await;
    let daemon = serve(&home, "tls:127.0.0.1:0");
    let address = format!("tls:{}", tls_address(&home));
    let old = fingerprint(&home, &[]).await;
    home.run(["tls", "renew", "--new-key"]).await.expect_code(0);
    let new = fingerprint(&home, &[]).await;
    prompt(&home, &address, &["--pin", &old]).await.expect_code(0);
    reload(&daemon, 1).await;
    // The line is said before the certificates are read; a connection that comes behind a later one is served by them.
    fs::write(home.data().join("tls/server.key"), "no key").unwrap();
    reload(&daemon, 2).await;
    daemon.wait_for_line("the certificate stays as it was");
    prompt(&home, &address, &["--pin", &new]).await.expect_code(0);
    prompt(&home, &address, &["--pin", &old]).await.expect_code(69);
    assert!(daemon.stop().await.success());
}

#[tokio::test]
async fn an_expired_certificate_is_told_on_both_sides() {
    let home = Home::new();
    home.scripted(&[ANSWER], "");
    create_token(&home, &["test"]).await;
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let issuer = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let mut leaf = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    (leaf.not_before, leaf.not_after) = (date_time_ymd(2020, 1, 1), date_time_ymd(2021, 1, 1));
    fs::create_dir_all(home.data().join("tls")).unwrap();
    fs::write(home.data().join("tls/server.pem"), leaf.signed_by(&key, &issuer).unwrap().pem()).unwrap();
    fs::write(home.data().join("tls/server.key"), key.serialize_pem()).unwrap();
    fs::write(home.data().join("tls/ca.pem"), issuer.pem()).unwrap();
    let daemon = serve(&home, "tls:127.0.0.1:0");
    assert!(daemon.stderr().contains("the certificate has expired"), "{}", daemon.stderr());
    let ran =
        prompt(&home, &format!("tls:{}", tls_address(&home)), &["--ca", &ca(&home)]).await.expect_code(69);
    assert!(ran.stderr.contains("not good now") && ran.stderr.contains("dshd tls renew"), "{}", ran.stderr);
    assert!(daemon.stop().await.success());
}

#[tokio::test]
async fn where_clients_need_a_certificate_only_those_come_in() {
    let home = certified(&["localhost"]).await;
    let made = home.run(["tls", "client", "laptop"]).await.expect_code(0).stdout;
    let tables = format!(
        "[[listen]]\nunix = {:?}\n[[listen]]\ntcp = \"127.0.0.1:0\"\ntls = {{ client_ca = {:?} }}\n[tools]\n\
         allow_unsandboxed_remote = true\n{made}",
        home.socket(),
        ca(&home)
    );
    home.scripted(&[ANSWER], &tables);
    let daemon = Daemon::spawn(&home, home.dshd(["serve"]));
    let address = format!("tls:{}", tls_address(&home));
    prompt(&home, &address, &["--ca", &ca(&home)]).await.expect_code(0);
    home.scripted(&[ANSWER], "");
    let ran = prompt(&home, &address, &["--ca", &ca(&home)]).await.expect_code(69);
    assert!(ran.stderr.contains("ertificate"), "{}", ran.stderr);
    assert!(daemon.stop().await.success());
}
