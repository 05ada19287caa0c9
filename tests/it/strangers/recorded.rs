//! The first bytes of programs that were not made for us, as browsers and others send them.

/// A page is opened: Chrome, `http://127.0.0.1:PORT/`.
const GET: &str = "GET / HTTP/1.1\r\nHost: 127.0.0.1:7433\r\nConnection: keep-alive\r\nsec-ch-ua: \"Chromium\";v=\"130\", \
\"Google Chrome\";v=\"130\", \"Not?A_Brand\";v=\"99\"\r\nsec-ch-ua-mobile: ?0\r\nsec-ch-ua-platform: \"Linux\"\r\n\
Upgrade-Insecure-Requests: 1\r\nUser-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) \
Chrome/130.0.0.0 Safari/537.36\r\nAccept: text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,\
image/apng,*/*;q=0.8,application/signed-exchange;v=b3;q=0.7\r\nSec-Fetch-Site: none\r\nSec-Fetch-Mode: navigate\r\n\
Sec-Fetch-User: ?1\r\nSec-Fetch-Dest: document\r\nAccept-Encoding: gzip, deflate, br, zstd\r\n\
Accept-Language: en-US,en;q=0.9\r\n\r\n";

/// `fetch(url, {method: "POST", headers: {"Content-Type": "application/json"}})` asks first: Firefox.
const OPTIONS: &str = "OPTIONS / HTTP/1.1\r\nHost: 127.0.0.1:7433\r\nUser-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:132.0) \
Gecko/20100101 Firefox/132.0\r\nAccept: */*\r\nAccept-Language: en-US,en;q=0.5\r\nAccept-Encoding: gzip, deflate, br, zstd\r\n\
Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: content-type\r\nReferer: https://evil.example/\r\n\
Origin: https://evil.example\r\nConnection: keep-alive\r\nSec-Fetch-Dest: empty\r\nSec-Fetch-Mode: cors\r\n\
Sec-Fetch-Site: cross-site\r\nPriority: u=4\r\n\r\n";

/// `new WebSocket("ws://127.0.0.1:PORT")`: Chrome.
const UPGRADE: &str = "GET / HTTP/1.1\r\nHost: 127.0.0.1:7433\r\nConnection: Upgrade\r\nPragma: no-cache\r\n\
Cache-Control: no-cache\r\nUser-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) \
Chrome/130.0.0.0 Safari/537.36\r\nUpgrade: websocket\r\nOrigin: https://evil.example\r\nSec-WebSocket-Version: 13\r\n\
Accept-Encoding: gzip, deflate, br, zstd\r\nAccept-Language: en-US,en;q=0.9\r\n\
Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n\r\n";

/// `navigator.sendBeacon` and a form of `enctype="text/plain"`: no preflight, and lines of ours in the body.
fn post(body: &str) -> String {
    format!(
        "POST / HTTP/1.1\r\nHost: 127.0.0.1:7433\r\nConnection: keep-alive\r\nContent-Length: {}\r\nCache-Control: max-age=0\r\n\
         Origin: https://evil.example\r\nContent-Type: text/plain\r\nUser-Agent: Mozilla/5.0 (X11; Linux x86_64) \
         AppleWebKit/537.36 (KHTML, like Gecko) Chrome/130.0.0.0 Safari/537.36\r\nAccept: */*\r\n\
         Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: no-cors\r\nSec-Fetch-Dest: empty\r\nReferer: https://evil.example/\r\n\
         Accept-Encoding: gzip, deflate, br, zstd\r\nAccept-Language: en-US,en;q=0.9\r\n\r\n{body}",
        body.len()
    )
}

/// A TLS handshake begins: OpenSSL.
pub(crate) const CLIENT_HELLO: &[u8] = include_bytes!("client_hello.bin");

/// All of them, with a name each. `body` is what a page posts.
pub(crate) fn all(body: &str) -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("GET", GET.into()),
        ("POST", post(body).into()),
        ("OPTIONS", OPTIONS.into()),
        ("WebSocket", UPGRADE.into()),
        ("HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x12\x04\x00\x00\x00\x00\x00".to_vec()),
        ("TLS", CLIENT_HELLO.to_vec()),
        ("SSH", b"SSH-2.0-OpenSSH_9.6p1 Ubuntu-3ubuntu13.5\r\n".to_vec()),
        ("SMB", b"\x00\x00\x00\x45\xffSMBr\x00\x00\x00\x00".to_vec()),
        ("zeros", vec![0; 512]),
    ]
}
