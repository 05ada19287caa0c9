//! A model server on the OpenAI-compatible wire, as fast or as slow as a figure wants it.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// What every answer looks like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Script {
    /// Deltas of an answer.
    pub(crate) deltas: usize,
    /// Pause before each.
    pub(crate) pause: Duration,
    /// Deltas in one write.
    pub(crate) batch: usize,
    /// Write the time into each delta.
    pub(crate) stamped: bool,
    /// Answers that call `read` before each one of text.
    pub(crate) calls: u64,
    /// Bytes of each delta; 0: a word.
    pub(crate) width: usize,
}

impl Script {
    /// Answers of so many deltas in one write.
    pub(crate) const fn at_once(deltas: usize) -> Self {
        Self { deltas, pause: Duration::ZERO, batch: deltas, stamped: false, calls: 0, width: 0 }
    }
}

/// A running model server.
pub(crate) struct Model {
    pub(crate) base_url: String,
    served_ns: Arc<AtomicU64>,
}

impl Model {
    pub(crate) fn start(script: Script) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let base_url = format!("http://{}", listener.local_addr().unwrap());
        let served_ns = Arc::new(AtomicU64::new(0));
        let (served, answers) = (served_ns.clone(), Arc::new(AtomicU64::new(0)));
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (served, answers) = (served.clone(), answers.clone());
                std::thread::spawn(move || serve(&stream, script, &served, &answers));
            }
        });
        Self { base_url, served_ns }
    }

    /// Time spent in answers so far: from the request's end to the answer's.
    pub(crate) fn served(&self) -> Duration {
        Duration::from_nanos(self.served_ns.load(Ordering::Relaxed))
    }
}

/// Nanoseconds since the epoch.
pub(crate) fn now_ns() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos()
}

fn serve(stream: &TcpStream, script: Script, served_ns: &AtomicU64, answers: &AtomicU64) {
    stream.set_nodelay(true).unwrap();
    let mut reader = BufReader::new(stream);
    while read_request(&mut reader).is_some() {
        let began = Instant::now();
        let nth = answers.fetch_add(1, Ordering::Relaxed);
        let calls = nth % (script.calls + 1) < script.calls;
        let answered = if calls { call(stream, nth) } else { answer(stream, script) };
        if answered.is_err() {
            return;
        }
        let spent = u64::try_from(began.elapsed().as_nanos()).unwrap();
        served_ns.fetch_add(spent, Ordering::Relaxed);
    }
}

fn read_request(reader: &mut BufReader<&TcpStream>) -> Option<()> {
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let line = line.trim().to_ascii_lowercase();
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
        if line.is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()
}

const HEAD: &[u8] =
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";

/// An answer that calls `read`, never twice with the same arguments.
fn call(mut stream: &TcpStream, nth: u64) -> std::io::Result<()> {
    stream.write_all(HEAD)?;
    let arguments = format!("{{\\\"file_path\\\":\\\"probe\\\",\\\"offset\\\":{}}}", nth + 1);
    let event = format!(
        "data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"tool_calls\":[{{\"index\":0,\"id\":\"call_{nth}\",\"type\":\
         \"function\",\"function\":{{\"name\":\"read\",\"arguments\":\"{arguments}\"}}}}]}},\"finish_reason\":\
         \"tool_calls\"}}]}}\n\ndata: [DONE]\n\n"
    );
    chunk(stream, event.as_bytes())?;
    stream.write_all(b"0\r\n\r\n")
}

fn answer(mut stream: &TcpStream, script: Script) -> std::io::Result<()> {
    stream.write_all(HEAD)?;
    let mut sent = 0;
    let mut batch = Vec::new();
    while sent < script.deltas {
        if !script.pause.is_zero() {
            std::thread::sleep(script.pause);
        }
        batch.clear();
        for _ in 0..script.batch.min(script.deltas - sent) {
            let text = match (script.stamped, script.width) {
                (true, _) => format!("{} ", now_ns()),
                (false, 0) => "word ".to_owned(),
                (false, width) => "w".repeat(width),
            };
            write!(
                batch,
                "data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{text}\"}}}}]}}\n\n"
            )?;
            sent += 1;
        }
        chunk(stream, &batch)?;
    }
    chunk(
        stream,
        b"data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":9,\
          \"completion_tokens\":9,\"total_tokens\":18}}\n\ndata: [DONE]\n\n",
    )?;
    stream.write_all(b"0\r\n\r\n")
}

fn chunk(mut stream: &TcpStream, bytes: &[u8]) -> std::io::Result<()> {
    let mut framed = format!("{:x}\r\n", bytes.len()).into_bytes();
    framed.extend_from_slice(bytes);
    framed.extend_from_slice(b"\r\n");
    stream.write_all(&framed)
}
