//! A typed client of the protocol, for the command line, tests, benches and programs that embed it.
//!
//! A [`Client`] sends requests and awaits their replies; what the daemon tells unasked comes through
//! [`Notifications`]. Both are bounded and nothing is dropped: while the notifications are not read, the connection is
//! not read either, and replies wait behind them. So read them while a request waits, or drop [`Notifications`]
//! when they are not wanted. All notifications that were sent before a reply can be taken, without waiting, once that reply
//! is there ([`Notifications::take_ready`]).
//!
//! ```no_run
//! use dshd::client::{Address, Client, ConnectOptions};
//! use dshd::protocol::{InitializeParams, InitializeResult, Method};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let address: Address = "unix:/run/dshd/dshd.sock".parse()?;
//! let (client, notifications) = Client::connect(&address, &ConnectOptions::default()).await?;
//! drop(notifications);
//! let hello: InitializeResult = client.call(Method::Initialize, &InitializeParams::default()).await?;
//! println!("connection {}", hello.connection_id);
//! client.close().await;
//! # Ok(())
//! # }
//! ```

mod address;
mod error;
mod frame;
mod link;
pub mod session;
pub mod tls;
mod transport;

use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{mpsc, oneshot};
use zeroize::Zeroizing;

pub use self::address::{Address, AddressError};
pub use self::error::{CallError, ConnectError, RpcError};
pub use self::frame::Notification;
use self::link::Table;
pub use self::tls::Trust;
pub use self::transport::{Stream, UNIX_PATH_BYTES_MAX};
use crate::protocol::{AuthenticateParams, Empty, Method};
use crate::shutdown::Scope;

/// Notifications that wait for their reader; beyond them the connection is not read.
const NOTIFICATIONS_MAX: usize = 1024;

/// Requests that wait for the writer; beyond them a call waits.
const REQUESTS_MAX: usize = 64;

/// After a failed write, the time that the reader gets to learn why.
const REFUSAL_WAIT: Duration = Duration::from_secs(1);

/// The time that [`Client::close`] waits for the daemon to close its side.
const CLOSE_WAIT: Duration = Duration::from_secs(2);

/// How to connect.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    /// Longest wait for the connection, and for the answer to the token.
    pub timeout: Duration,
    /// The secret for TCP, with TLS or without; other transports need none.
    pub token: Option<Zeroizing<String>>,
    /// Whom to trust at a `tls:` address.
    pub trust: Trust,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        Self { timeout: Duration::from_secs(10), token: None, trust: Trust::default() }
    }
}

/// A connection to a daemon. Cheap to clone; the last one dropped ends it.
#[derive(Clone, Debug)]
pub struct Client {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    table: Arc<Table>,
    requests: mpsc::Sender<Vec<u8>>,
    scope: Scope,
    /// `ssh`, which is killed with us.
    _child: Option<tokio::process::Child>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.scope.abort();
    }
}

impl Client {
    /// Connects, and on TCP authenticates when there is a token.
    ///
    /// # Errors
    /// [`ConnectError`], which tells apart what a person has to do about it.
    pub async fn connect(
        address: &Address,
        options: &ConnectOptions,
    ) -> Result<(Self, Notifications), ConnectError> {
        let stream = Stream::open(address, &options.trust, options.timeout).await?;
        let (client, notifications) = Self::on(stream);
        if let (true, Some(token)) = (address.needs_token(), &options.token) {
            client
                .authenticate(token, options.timeout)
                .await
                .map_err(|source| ConnectError::Refused { source })?;
        }
        Ok((client, notifications))
    }

    /// Speaks over a stream that was opened before.
    pub fn on(stream: Stream) -> (Self, Notifications) {
        Self::join(stream.reader, stream.writer, stream.child)
    }

    /// Speaks over any pair of streams.
    pub fn over<R, W>(reader: R, writer: W) -> (Self, Notifications)
    where
        R: AsyncRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        Self::join(reader, writer, None)
    }

    fn join<R, W>(reader: R, writer: W, child: Option<tokio::process::Child>) -> (Self, Notifications)
    where
        R: AsyncRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let table = Arc::new(Table::default());
        let scope = Scope::new();
        let (requests, queued) = mpsc::channel(REQUESTS_MAX);
        let (told, notifications) = mpsc::channel(NOTIFICATIONS_MAX);
        spawn(&scope, link::read(reader, Arc::clone(&table), told));
        spawn(&scope, link::write(writer, Arc::clone(&table), queued, scope.draining().clone()));
        let inner = Arc::new(Inner { table, requests, scope, _child: child });
        (Self { inner }, Notifications { queue: notifications })
    }

    /// Says a token, which has to be the first request on TCP.
    ///
    /// # Errors
    /// [`CallError`]; after a refusal the daemon closes the connection.
    pub async fn authenticate(&self, token: &str, deadline: Duration) -> Result<(), CallError> {
        let params = AuthenticateParams { token: token.to_owned() };
        let Empty {} = self.call_within(deadline, Method::Authenticate, &params).await?;
        Ok(())
    }

    /// Sends a request; the reply is awaited apart from it. Requests are on the wire in the order of these calls.
    ///
    /// # Errors
    /// [`CallError`] when the connection has ended or the parameters can't be written.
    pub async fn send<P, R>(&self, method: Method, params: &P) -> Result<Reply<R>, CallError>
    where
        P: Serialize + ?Sized,
        R: DeserializeOwned,
    {
        let (id, outcome) = self.inner.table.enter()?;
        let seat = Seat { table: Arc::clone(&self.inner.table), id };
        let line = frame::request(id, method.name(), params)?;
        if self.inner.requests.send(line).await.is_err() {
            return Err(self.ended().await);
        }
        Ok(Reply { outcome, _seat: seat, method, result: PhantomData })
    }

    /// Sends a request and awaits its result, however long it takes.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn call<P, R>(&self, method: Method, params: &P) -> Result<R, CallError>
    where
        P: Serialize + ?Sized,
        R: DeserializeOwned,
    {
        self.send(method, params).await?.await
    }

    /// Sends a request and awaits its result at most `deadline`. The daemon is not told that nobody waits any longer.
    ///
    /// # Errors
    /// [`CallError`], [`CallError::TimedOut`] among them.
    pub async fn call_within<P, R>(
        &self,
        deadline: Duration,
        method: Method,
        params: &P,
    ) -> Result<R, CallError>
    where
        P: Serialize + ?Sized,
        R: DeserializeOwned,
    {
        tokio::time::timeout(deadline, self.call(method, params))
            .await
            .unwrap_or(Err(CallError::TimedOut(deadline)))
    }

    /// Waits until the connection has ended, and says why.
    pub async fn ended(&self) -> CallError {
        self.inner.table.ended().await
    }

    /// Sends what is queued, ends our side, and waits a moment for the daemon to end its own.
    pub async fn close(self) {
        self.inner.scope.drain();
        // Whatever is left then ends with the last clone.
        let _ = tokio::time::timeout(CLOSE_WAIT, self.ended()).await;
    }
}

/// Runs a task until it is done or the scope is aborted.
fn spawn(scope: &Scope, task: impl Future<Output = ()> + Send + 'static) {
    let aborting = scope.aborting().clone();
    scope.spawn(async move {
        tokio::select! {
            biased;
            () = aborting.cancelled() => {}
            () = task => {}
        }
    });
}

/// A reply that is on its way; a future of the result. Dropping it gives up the wait, not the request.
#[derive(Debug)]
pub struct Reply<R> {
    outcome: oneshot::Receiver<Result<Box<RawValue>, CallError>>,
    _seat: Seat,
    method: Method,
    result: PhantomData<fn() -> R>,
}

impl<R: DeserializeOwned> Future for Reply<R> {
    type Output = Result<R, CallError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.outcome).poll(cx).map(|outcome| {
            let gone = |_| Err(CallError::Closed("the client was dropped".to_owned()));
            let raw = outcome.unwrap_or_else(gone)?;
            let mut reader = serde_json::Deserializer::from_str(raw.get());
            serde_path_to_error::deserialize(&mut reader)
                .map_err(|error| CallError::Result { method: self.method, detail: error.to_string() })
        })
    }
}

/// A place in the table, given back when nobody waits any longer.
#[derive(Debug)]
struct Seat {
    table: Arc<Table>,
    id: u64,
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.table.leave(self.id);
    }
}

/// What a daemon tells, in its order. Dropping it says that nothing of it is wanted.
#[derive(Debug)]
pub struct Notifications {
    queue: mpsc::Receiver<Notification>,
}

impl Notifications {
    /// The next one; `None` when the connection has ended and all were taken. Cancel safe.
    pub async fn next(&mut self) -> Option<Notification> {
        self.queue.recv().await
    }

    /// Says that nothing more of it is wanted, as dropping does.
    pub fn close(&mut self) {
        self.queue.close();
    }

    /// The next one that has arrived already.
    pub fn take_ready(&mut self) -> Option<Notification> {
        self.queue.try_recv().ok()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf};

    use super::*;

    /// The daemon's side of a connection.
    struct Daemon {
        lines: Lines<BufReader<ReadHalf<DuplexStream>>>,
        writer: WriteHalf<DuplexStream>,
    }

    impl Daemon {
        async fn line(&mut self) -> String {
            within(self.lines.next_line()).await.unwrap().expect("a line")
        }

        async fn say(&mut self, line: &str) {
            within(self.writer.write_all(format!("{line}\n").as_bytes())).await.unwrap();
        }
    }

    fn pair() -> (Client, Notifications, Daemon) {
        let (ours, theirs) = tokio::io::duplex(4096);
        let (reader, writer) = tokio::io::split(ours);
        let (client, notifications) = Client::over(reader, writer);
        let (reader, writer) = tokio::io::split(theirs);
        (client, notifications, Daemon { lines: BufReader::new(reader).lines(), writer })
    }

    async fn within<F: Future>(future: F) -> F::Output {
        tokio::time::timeout(Duration::from_secs(20), future).await.expect("in time")
    }

    #[derive(Debug, PartialEq, serde::Deserialize)]
    struct Number {
        n: u32,
    }

    #[tokio::test]
    async fn replies_find_their_calls_in_any_order() {
        let (client, _notifications, mut daemon) = pair();
        let first = client.send::<_, Number>(Method::Ping, &Empty {}).await.unwrap();
        let second = client.send::<_, Number>(Method::Status, &Empty {}).await.unwrap();
        assert_eq!(daemon.line().await, r#"{"jsonrpc":"2.0","id":1,"method":"server/ping","params":{}}"#);
        assert_eq!(daemon.line().await, r#"{"jsonrpc":"2.0","id":2,"method":"server/status","params":{}}"#);
        daemon.say(r#"{"id":2,"result":{"n":2}}"#).await;
        daemon.say(r#"{"id":1,"result":{"n":1}}"#).await;
        assert_eq!(within(second).await.unwrap(), Number { n: 2 });
        assert_eq!(within(first).await.unwrap(), Number { n: 1 });
    }

    #[tokio::test]
    async fn what_was_told_before_a_reply_is_ready_once_the_reply_is_there() {
        let (client, mut notifications, mut daemon) = pair();
        let reply = client.send::<_, Number>(Method::Ping, &Empty {}).await.unwrap();
        for n in 0..3 {
            daemon.say(&format!(r#"{{"method":"session.event","params":{{"n":{n}}}}}"#)).await;
        }
        daemon.say(r#"{"id":1,"result":{"n":9}}"#).await;
        within(reply).await.unwrap();
        for n in 0..3 {
            assert_eq!(notifications.take_ready().unwrap().params.get(), format!(r#"{{"n":{n}}}"#));
        }
    }

    #[tokio::test]
    async fn a_reader_that_stops_loses_nothing_and_stops_the_daemon() {
        let (client, mut notifications, mut daemon) = pair();
        let count = NOTIFICATIONS_MAX * 3;
        let telling = tokio::task::spawn_blocking(move || {
            tokio::runtime::Handle::current().block_on(async move {
                for n in 0..count {
                    daemon.say(&format!(r#"{{"method":"x","params":{n}}}"#)).await;
                }
                daemon
            })
        });
        for n in 0..count {
            assert_eq!(within(notifications.next()).await.unwrap().params.get(), n.to_string());
        }
        drop(within(telling).await.unwrap());
        assert!(within(notifications.next()).await.is_none());
        assert!(matches!(within(client.ended()).await, CallError::Closed(_)));
    }

    #[tokio::test]
    async fn replies_come_when_notifications_are_not_wanted() {
        let (client, notifications, mut daemon) = pair();
        drop(notifications);
        let reply = client.send::<_, Number>(Method::Ping, &Empty {}).await.unwrap();
        for n in 0..NOTIFICATIONS_MAX * 2 {
            daemon.say(&format!(r#"{{"method":"x","params":{n}}}"#)).await;
        }
        daemon.say(r#"{"id":1,"result":{"n":1}}"#).await;
        assert_eq!(within(reply).await.unwrap(), Number { n: 1 });
    }

    #[tokio::test]
    async fn a_call_that_waits_learns_why_the_daemon_closed() {
        let (client, _notifications, mut daemon) = pair();
        let reply = client.send::<_, Number>(Method::Ping, &Empty {}).await.unwrap();
        daemon
            .say(r#"{"id":null,"error":{"code":-32003,"message":"no","data":{"kind":"unauthenticated"}}}"#)
            .await;
        drop(daemon);
        assert_eq!(within(reply).await.unwrap_err().rpc().unwrap().kind, "unauthenticated");
        let later = within(client.call::<_, Number>(Method::Status, &Empty {})).await.unwrap_err();
        assert_eq!(later.rpc().unwrap().code, -32003);
    }

    #[tokio::test]
    async fn a_peer_that_speaks_something_else_is_told_apart() {
        let (client, _notifications, mut daemon) = pair();
        let reply = client.send::<_, Number>(Method::Ping, &Empty {}).await.unwrap();
        daemon.say("HTTP/1.1 400 Bad Request\r").await;
        let CallError::NotDshd { got } = within(reply).await.unwrap_err() else { panic!("taken for dshd") };
        assert_eq!(got, "HTTP/1.1 400 Bad Request");
    }

    #[tokio::test]
    async fn a_result_of_another_shape_names_the_field() {
        let (client, _notifications, mut daemon) = pair();
        let reply = client.send::<_, Number>(Method::Resume, &Empty {}).await.unwrap();
        daemon.say(r#"{"id":1,"result":{"n":"x"}}"#).await;
        let error = within(reply).await.unwrap_err().to_string();
        assert!(error.starts_with("the reply to session/resume cannot be read: n: "), "{error}");
    }

    #[tokio::test]
    async fn a_call_that_is_given_up_leaves_no_place_behind() {
        let (client, _notifications, mut daemon) = pair();
        drop(client.send::<_, Number>(Method::Ping, &Empty {}).await.unwrap());
        let reply = client.send::<_, Number>(Method::Status, &Empty {}).await.unwrap();
        daemon.say(r#"{"id":1,"result":{"n":1}}"#).await;
        daemon.say(r#"{"id":2,"result":{"n":2}}"#).await;
        assert_eq!(within(reply).await.unwrap(), Number { n: 2 });
    }

    #[tokio::test]
    async fn close_sends_what_is_queued_and_then_ends_our_side() {
        let (client, _notifications, mut daemon) = pair();
        let _reply = client.send::<_, Number>(Method::Ping, &Empty {}).await.unwrap();
        let closing = async {
            assert!(daemon.line().await.contains("server/ping"));
            assert!(within(daemon.lines.next_line()).await.unwrap().is_none());
            drop(daemon);
        };
        within(async { tokio::join!(client.close(), closing) }).await;
    }

    #[tokio::test]
    async fn dropping_the_client_ends_the_connection() {
        let (client, notifications, mut daemon) = pair();
        drop((client, notifications));
        assert!(within(daemon.lines.next_line()).await.unwrap().is_none());
    }
}
