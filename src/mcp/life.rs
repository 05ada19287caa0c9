//! A server's life: start, serve, die, wait, start again; until it is stopped or nobody needs it.

use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{ClientRequest, PingRequest};
use tokio::time::{Instant, sleep_until, timeout};

use super::connect::Connection;
use super::listing;
use super::server::{Phase, Server};
use crate::metrics::METRICS;
use crate::shutdown::Scope;

/// The first pause before a start that follows a death, and the longest; it doubles in between.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_mins(1);
/// Whoever has lived so long dies of something new.
const HEALTHY: Duration = Duration::from_mins(1);
/// A start may take longer than a step waits for it: a package may have to be fetched first.
const START_MIN: Duration = Duration::from_mins(1);
/// Whoever does not answer a ping within this is dead.
const PING_MAX: Duration = Duration::from_secs(5);
/// What a program gets to end by itself when its server is given up.
const GIVEN_UP_GRACE: Duration = Duration::from_millis(500);

/// Why a server no longer serves.
enum Over {
    /// It is to end; its program gets so long.
    Stopped(Duration),
    /// It died, or has to.
    Died(String),
}

/// Lives the whole of it. Dropped, the program is killed.
pub(super) async fn live(server: Arc<Server>, idle: Duration, scope: Scope) {
    let aborted = scope.aborting().clone();
    tokio::select! {
        biased;
        () = aborted.cancelled() => {}
        () = lives(&server, idle, &scope) => {}
    }
    server.view.send_modify(|view| {
        view.phase = Phase::Stopped;
        view.tools = None;
    });
}

async fn lives(server: &Arc<Server>, idle: Duration, scope: &Scope) {
    let name = server.name();
    let limit = server.definition.start_timeout.max(START_MIN);
    let mut pause = PAUSE_MIN;
    loop {
        let born = Instant::now();
        server.view.send_modify(|view| view.phase = Phase::Starting { since: born });
        let opened = tokio::select! {
            biased;
            // What has started is dropped, which kills it.
            _ = stopped(server) => return,
            opened = Connection::open(&server.definition, limit, scope) => opened,
        };
        let why = match opened {
            Ok((connection, tools)) => {
                tracing::info!(server = name, tools = tools.len(), "an MCP server is ready");
                server.view.send_modify(|view| {
                    view.phase =
                        Phase::Ready { peer: connection.peer.clone(), line: connection.line.clone() };
                    view.tools = Some(tools.into());
                    view.failures = 0;
                });
                match serve(server, &connection, idle).await {
                    Over::Stopped(grace) => {
                        tracing::info!(server = name, "an MCP server is stopped");
                        connection.close("it was stopped", grace).await;
                        return;
                    }
                    Over::Died(why) => {
                        // Calls hear at once; a program that hangs takes its time to be ended.
                        connection.line.end(why.as_str());
                        set_down(server, &why, pause);
                        connection.close(&why, GIVEN_UP_GRACE).await
                    }
                }
            }
            Err(why) => {
                server.view.send_modify(|view| view.failures = view.failures.saturating_add(1));
                why
            }
        };
        if born.elapsed() >= HEALTHY {
            pause = PAUSE_MIN;
        }
        tracing::warn!(server = name, why, retry_ms = pause.as_millis(), "an MCP server is down");
        let until = set_down(server, &why, pause);
        pause = (pause * 2).min(PAUSE_MAX);
        tokio::select! {
            biased;
            _ = stopped(server) => return,
            () = unused(server, idle) => return,
            () = sleep_until(until) => {}
        }
        METRICS.mcp_restarts.add(1);
    }
}

fn set_down(server: &Server, why: &str, pause: Duration) -> Instant {
    let until = Instant::now() + pause;
    server.view.send_modify(|view| view.phase = Phase::Down { why: why.into(), until });
    until
}

/// Serves until it ends.
async fn serve(server: &Arc<Server>, connection: &Connection, idle: Duration) -> Over {
    loop {
        tokio::select! {
            biased;
            grace = stopped(server) => return Over::Stopped(grace),
            () = connection.line.ended() => {
                return Over::Died(connection.line.why().unwrap_or_default());
            }
            () = connection.line.outdated() => list_again(server, connection).await,
            () = server.doubted.notified() => {
                if let Err(why) = is_alive(connection).await {
                    return Over::Died(why);
                }
            }
            () = unused(server, idle) => return Over::Stopped(GIVEN_UP_GRACE),
        }
    }
}

/// Asks for the new list. One that does not come leaves the old one.
async fn list_again(server: &Server, connection: &Connection) {
    let changes = connection.line.changes();
    let limit = server.definition.start_timeout;
    let listed = tokio::select! {
        biased;
        () = connection.line.ended() => return,
        listed = listing::list(server.name(), &connection.peer, limit) => listed,
    };
    match &listed {
        Ok(tools) => {
            tracing::info!(server = server.name(), tools = tools.len(), "an MCP server's tools changed");
        }
        Err(why) => tracing::warn!(server = server.name(), why, "an MCP server's tools stay as they were"),
    }
    server.view.send_modify(|view| {
        connection.line.set_listed(changes);
        if let Ok(tools) = listed {
            view.tools = Some(tools.into());
        }
    });
}

/// A server that hangs in one call may well run others: only one that answers nothing is given up.
async fn is_alive(connection: &Connection) -> Result<(), String> {
    let ping = ClientRequest::PingRequest(PingRequest::default());
    match timeout(PING_MAX, connection.peer.send_request(ping)).await {
        // An error is an answer, too.
        Ok(Ok(_) | Err(rmcp::ServiceError::McpError(_))) => Ok(()),
        Ok(Err(error)) => Err(super::describe(&error)),
        Err(_) => Err(format!("it did not answer a ping within {} s", PING_MAX.as_secs())),
    }
}

/// Waits until it is to end; how long its program may take.
async fn stopped(server: &Server) -> Duration {
    let mut stop = server.stop.subscribe();
    let grace = stop.wait_for(Option::is_some).await.ok().and_then(|grace| *grace);
    // The sender is the server's own.
    grace.unwrap_or_default()
}

/// Waits until no session has asked for it for so long.
async fn unused(server: &Server, idle: Duration) {
    loop {
        let at = server.idle_at(idle);
        if at <= Instant::now() {
            return;
        }
        sleep_until(at).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::config::{Config, McpServer};
    use crate::mcp::definition::{Definition, Surroundings};
    use crate::mcp::server::View;
    use crate::process::Sandbox;

    const IDLE: Duration = Duration::from_hours(1);

    fn hopeless() -> Arc<Server> {
        let surroundings = Surroundings::new([], &[], 1000, Sandbox::of_config(&Config::default()));
        let server = McpServer { command: Some("${NONE}".to_owned()), ..McpServer::default() };
        Arc::new(Server::new(Definition::new("x", &server, None, &surroundings)))
    }

    #[tokio::test(start_paused = true)]
    async fn starts_that_fail_are_made_again_after_pauses_that_double_up_to_a_minute() {
        let (server, scope) = (hopeless(), Scope::new());
        scope.spawn(live(Arc::clone(&server), IDLE, scope.clone()));
        let mut view = server.view.subscribe();
        for (at, seconds) in [1, 2, 4, 8, 16, 32, 60, 60].into_iter().enumerate() {
            let fails = u32::try_from(at).unwrap() + 1;
            let down = |view: &View| view.failures == fails && matches!(view.phase, Phase::Down { .. });
            let phase = view.wait_for(down).await.unwrap().phase.clone();
            let Phase::Down { until, why } = phase else { panic!("it is down") };
            assert_eq!(until - Instant::now(), Duration::from_secs(seconds));
            assert!(why.contains("NONE"), "{why}");
        }
        server.stop.send_replace(Some(Duration::ZERO));
        assert!(scope.wait(Duration::from_secs(1)).await);
        assert!(server.is_stopped());
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_nobody_asks_for_ends() {
        let (server, scope) = (hopeless(), Scope::new());
        scope.spawn(live(Arc::clone(&server), IDLE, scope.clone()));
        let born = Instant::now();
        server.view.subscribe().wait_for(|view| matches!(view.phase, Phase::Stopped)).await.unwrap();
        assert_eq!(born.elapsed(), IDLE);
    }

    #[tokio::test(start_paused = true)]
    async fn an_abort_ends_it_at_once() {
        let (server, scope) = (hopeless(), Scope::new());
        scope.spawn(live(Arc::clone(&server), IDLE, scope.clone()));
        scope.abort();
        assert!(scope.wait(Duration::from_secs(1)).await);
    }
}
