//! How a model is reached: headers, certificates, proxies.

use serde_json::Value;

use super::front::{Proxy, TlsFront};
use crate::model_server::{ModelServer, Reply, chat};
use crate::stage::{Stage, leave};
use crate::support::{Daemon, Home};

/// A home whose provider is at an address, with more of its keys.
fn home_of(base_url: &str, keys: &str) -> Home {
    let home = Home::new();
    home.configure(&format!(
        "default_provider = \"fake\"\n[providers.fake]\nkind = \"chat\"\nbase_url = \"{base_url}\"\n\
         default_model = \"m\"\nmax_retries = 0\n{keys}\n"
    ));
    home
}

/// One prompt to a daemon of this home, with these variables.
async fn ask(home: &Home, variables: &[(&str, &str)]) -> Value {
    let mut command = home.dshd(["serve"]);
    command.envs(variables.iter().copied());
    let daemon = Daemon::spawn(home, command);
    let mut peer = daemon.peer().await;
    let result = peer.prompt("s", "hi").await;
    peer.take_aside();
    peer.finish().await;
    assert!(daemon.stop().await.success());
    result
}

fn port_of(server: &ModelServer) -> u16 {
    server.url().rsplit(':').next().unwrap().parse().unwrap()
}

#[tokio::test]
async fn configured_headers_go_with_each_request_and_nobody_is_told_what_they_hold() {
    let headers = "headers = { X-Team = \"blue-secret\", Authorization = \"Bearer of-the-gateway\" }";
    let stage = Stage::with(headers, "").await;
    stage.says(&["hi"]);
    let mut peer = stage.peer().await;
    assert_eq!(peer.prompt("s", "x").await["status"], "ok");
    let request = stage.model.request().await;
    assert_eq!(request.header("x-team"), Some("blue-secret"));
    assert_eq!(request.header("authorization"), Some("Bearer of-the-gateway"), "what is configured wins");

    stage.model.push(Reply::status(400).json(r#"{"error":{"message":"no team blue-secret"}}"#));
    let result = peer.prompt("s", "y").await;
    let message = result["reason"]["error"]["message"].as_str().unwrap();
    assert!(message.contains("no team [key]"), "{message}");
    peer.take_aside();
    leave(peer).await;

    for arguments in [&["config", "show", "--sources"][..], &["config", "show", "--json"]] {
        let shown = stage.home.run(arguments).await.expect_code(0).stdout;
        assert!(shown.contains("X-Team") && !shown.contains("blue-secret"), "{shown}");
    }
}

#[tokio::test]
async fn an_authority_of_ones_own_is_trusted_where_its_file_is_named() {
    let server = ModelServer::start().await;
    let front = TlsFront::start("localhost", port_of(&server)).await;
    let url = format!("https://localhost:{}/v1", front.port);

    let distrusted = ask(&home_of(&url, ""), &[]).await;
    assert_eq!(distrusted["reason"]["error"]["code"], "TRANSPORT", "{distrusted}");

    let home = home_of(&url, "ca_file = \"ca.pem\"");
    let missing = ask(&home, &[]).await;
    let error = &missing["reason"]["error"];
    assert_eq!(error["code"], "INVALID_REQUEST", "{missing}");
    assert!(error["message"].as_str().unwrap().contains("providers.fake.ca_file"), "{error}");

    std::fs::write(home.path("home/.config/dshd/ca.pem"), &front.ca_pem).unwrap();
    server.push(chat::reply(&["trusted"]));
    let trusted = ask(&home, &[]).await;
    assert_eq!(trusted["status"], "ok", "{trusted}");
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn a_proxy_of_the_environment_leads_to_the_model_and_tls_goes_through_it() {
    let server = ModelServer::start().await;
    let front = TlsFront::start("model.test", port_of(&server)).await;
    let proxy = Proxy::start(front.port).await;
    let home = home_of("https://model.test/v1", "ca_file = \"ca.pem\"");
    std::fs::write(home.path("home/.config/dshd/ca.pem"), &front.ca_pem).unwrap();
    server.push(chat::reply(&["through the proxy"]));
    let result = ask(&home, &[("HTTPS_PROXY", &proxy.url())]).await;
    assert_eq!(result["status"], "ok", "{result}");
    assert_eq!(proxy.asked(), ["CONNECT model.test:443 HTTP/1.1"]);
}

/// An address, the daemon's variables, and how often the proxy is asked.
type Row<'a> = (&'a str, &'a [(&'a str, &'a str)], usize);

/// 0.0.0.0 is this machine too, and no loopback address.
#[tokio::test]
async fn a_proxy_is_left_aside_for_whom_no_proxy_names_and_for_this_machine() {
    let server = ModelServer::start().await;
    let proxy = Proxy::start(port_of(&server)).await;
    let elsewhere = format!("http://0.0.0.0:{}", port_of(&server));
    let rows: [Row<'_>; 4] = [
        (&elsewhere, &[("HTTP_PROXY", &proxy.url())], 1),
        (&elsewhere, &[("ALL_PROXY", &proxy.url())], 1),
        (&elsewhere, &[("HTTP_PROXY", &proxy.url()), ("NO_PROXY", "example.org,0.0.0.0")], 0),
        (&server.url(), &[("ALL_PROXY", &proxy.url())], 0),
    ];
    for (url, variables, times) in rows {
        let before = proxy.asked().len();
        server.push(chat::reply(&["hi"]));
        let result = ask(&home_of(url, ""), variables).await;
        assert_eq!(result["status"], "ok", "{variables:?}: {result}");
        assert_eq!(proxy.asked().len() - before, times, "{variables:?}: {:?}", proxy.asked());
    }
}
