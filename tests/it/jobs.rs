//! Background jobs and background children through the daemon: their whole life, and how they wake an agent.

use serde_json::{Value, json};

use crate::model_server::chat;
use crate::processes::{lives, pid_in, pids_in};
use crate::stage::{Stage, TRANSPORTS, Transport, events, leave, text_of};
use crate::support::{Peer, of_type, within};

impl Stage {
    /// Queues an answer of the model that calls one tool.
    fn calls(&self, tool: &str, arguments: &Value) {
        self.model.push(chat::calls(&[("call_x", tool, &arguments.to_string())]));
    }

    /// Queues an answer that starts a background job.
    fn starts_job(&self, command: &str) {
        self.calls("bash", &json!({ "command": command, "run_in_background": true }));
    }
}

/// The data of the next event of a type; others are put aside.
async fn data(peer: &mut Peer, kind: &str) -> Value {
    peer.event(kind).await["event"]["data"].take()
}

/// The text of the next tool result.
async fn result(peer: &mut Peer) -> (String, Value) {
    let data = data(peer, "tool/result").await;
    (text_of(&data["message"]), data)
}

async fn status(peer: &mut Peer, status: &str) {
    peer.take(|message| message["method"] == "session.status" && message["params"]["status"] == status).await;
}

#[tokio::test]
async fn a_job_is_registered_settles_and_wakes_an_idle_agent() {
    for transport in TRANSPORTS {
        let stage = Stage::over(transport).await;
        let mut peer = stage.peer().await;
        stage.starts_job("while ! test -e go; do sleep 0.01; done; echo out; echo err >&2; exit 3");
        stage.says(&["started"]);
        assert_eq!(peer.prompt("s", "build it").await["status"], "ok");
        let told = peer.take_aside();
        let told = events(&told);
        let at = |kind: &str| told.iter().position(|event| event["type"] == kind).unwrap();
        assert_eq!(at("job/registered") + 1, at("tool/result"));
        let registered = told[at("job/registered")]["data"].clone();
        let id = registered["jobId"].as_str().unwrap().to_owned();
        assert!(id.starts_with("bash-"), "{id}");
        assert_eq!((&registered["owner"], &registered["kind"]), (&json!("s"), &json!("bash")));
        assert_eq!(registered["toolCall"], json!({ "callId": "call_x" }));
        assert!(registered["label"].as_str().unwrap().starts_with("while ! test -e go"));
        // A job does not make its session busy.
        peer.call("session/wait", json!({ "sessionId": "s" })).await;
        peer.expect_silence().await;

        stage.calls("job_output", &json!({ "job_id": id }));
        stage.says(&["it failed"]);
        std::fs::write(stage.home.work().join("go"), "").unwrap();
        let settled = data(&mut peer, "job/settled").await;
        for member in ["jobId", "owner", "kind", "label", "startedAt", "toolCall"] {
            assert_eq!(settled[member], registered[member], "{member}");
        }
        assert_eq!((&settled["status"], &settled["detail"]), (&json!("completed"), &json!("exit code: 3")));
        assert!(settled["finishedAt"].as_u64() >= settled["startedAt"].as_u64());
        let insert = data(&mut peer, "agent/inbox/spliced").await;
        assert_eq!(insert["target"], "next-turn");
        let notice = &insert["inserted"][0];
        assert_eq!(notice["source"], json!({ "kind": "tool-jobs" }));
        let expected = format!("Background job {id} has ended: completed, exit code: 3.\nCommand: while");
        assert!(text_of(notice).starts_with(&expected), "{notice}");
        status(&mut peer, "running").await;
        let (text, _) = result(&mut peer).await;
        assert_eq!(text, format!("out\n[stderr]\nerr\n[job {id}: completed, exit code: 3]"));
        let end = data(&mut peer, "turn/end").await;
        assert_eq!((&end["turn"], &end["reason"]["kind"]), (&json!(2), &json!("completed")));
        status(&mut peer, "idle").await;
        // The model was asked again with the notice as the last word of a user.
        let asked = stage.model.requests();
        assert!(asked[2].text().contains(&format!("Background job {id} has ended")));
        peer.take_aside();
        leave(peer).await;
    }
}

#[tokio::test]
async fn the_end_of_a_job_reaches_a_running_turn_before_its_next_step() {
    let stage = Stage::new().await;
    let mut peer = stage.peer().await;
    stage.starts_job("while ! test -e go; do sleep 0.01; done");
    let live = stage.live();
    stage.says(&["I have heard"]);
    let running = peer.send_prompt("s", "x").await;
    let id = data(&mut peer, "job/registered").await["jobId"].take();
    // The job must not end before the step that its notice is to come after has begun.
    stage.model.request().await;
    stage.model.request().await;
    std::fs::write(stage.home.work().join("go"), "").unwrap();
    data(&mut peer, "job/settled").await;
    let insert = peer
        .take(|message| message["params"]["event"]["data"]["inserted"][0]["source"]["kind"] == "tool-jobs")
        .await;
    assert_eq!(insert["params"]["event"]["data"]["target"], "next-step");
    live.send(chat::text("one moment") + &chat::finish("stop")).await;
    live.end().await;
    assert_eq!(peer.reply(running).await["result"]["status"], "ok");
    let asked = within("the model hears of the job", async {
        loop {
            let asked = stage.model.requests();
            if asked.len() == 3 {
                return asked;
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert!(asked[2].text().contains(&format!("Background job {} has ended", id.as_str().unwrap())));
    peer.leave_unread();
}

#[tokio::test]
async fn jobs_are_listed_read_while_they_run_and_killed_with_all_that_they_started() {
    let stage = Stage::new().await;
    let mut peer = stage.peer().await;
    stage.starts_job(
        "setsid sleep 600 & echo $! > pids; echo $$ >> pids; trap '' TERM; while :; do sleep 1; done",
    );
    let live = stage.live();
    let running = peer.send_prompt("s", "x").await;
    let id = data(&mut peer, "job/registered").await["jobId"].take();
    let (started, _) = result(&mut peer).await;
    assert!(started.starts_with(&format!("Started background job {}.", id.as_str().unwrap())), "{started}");
    let pids = pids_in(&stage.home.work().join("pids"), 2).await;
    live.send(chat::call(0, "call_l", "job_list", "{}") + &chat::finish("tool_calls")).await;
    live.end().await;
    stage.calls("job_output", &json!({ "job_id": id }));
    stage.calls("job_kill", &json!({ "job_id": id }));
    let (listed, _) = result(&mut peer).await;
    assert!(listed.contains(&format!("{} [running for ", id.as_str().unwrap())), "{listed}");
    let (seen, _) = result(&mut peer).await;
    assert_eq!(seen, format!("[job {}: running]", id.as_str().unwrap()));
    let (killed, _) = result(&mut peer).await;
    assert_eq!(killed, format!("Killed background job {}.", id.as_str().unwrap()));
    assert!(pids.iter().all(|pid| !lives(*pid)), "{pids:?}");
    let settled = data(&mut peer, "job/settled").await;
    assert_eq!((&settled["status"], &settled["detail"]), (&json!("killed"), &json!("killed by job_kill")));
    stage.says(&["done"]);
    assert_eq!(peer.reply(running).await["result"]["status"], "ok");
    // The agent knows: nothing wakes it.
    peer.take_aside();
    peer.expect_silence().await;
    leave(peer).await;
}

#[tokio::test]
async fn a_job_outlives_the_cancel_of_its_turn_and_ends_with_its_session() {
    for transport in TRANSPORTS {
        let stage = Stage::over(transport).await;
        let mut peer = stage.peer().await;
        stage.starts_job("echo $$ > job.pid; setsid sleep 600 & echo $! > child.pid; sleep 600");
        let _live = stage.live();
        let running = peer.send_prompt("s", "x").await;
        let pids = [
            pid_in(&stage.home.work().join("job.pid")).await,
            pid_in(&stage.home.work().join("child.pid")).await,
        ];
        data(&mut peer, "tool/result").await;
        peer.call("session/cancel", json!({ "sessionId": "s" })).await;
        peer.reply(running).await;
        assert!(pids.iter().all(|pid| lives(*pid)), "{transport:?}");
        assert_eq!(peer.call("session/close", json!({ "sessionId": "s" })).await, json!({}));
        assert!(pids.iter().all(|pid| !lives(*pid)), "{transport:?}");
        let settled = data(&mut peer, "job/settled").await;
        assert_eq!(
            (&settled["status"], &settled["detail"]),
            (&json!("killed"), &json!("the session was closed"))
        );
        assert_eq!(peer.notification("session.closed").await["cause"], "closed");
        peer.take_aside();
        leave(peer).await;
    }
}

#[tokio::test]
async fn the_daemons_stop_ends_jobs_and_says_so_in_the_log() {
    let mut stage = Stage::new().await;
    let mut peer = stage.peer().await;
    stage.starts_job("trap '' TERM; echo $$ > job.pid; while :; do sleep 1; done");
    stage.says(&["started"]);
    peer.prompt("s", "x").await;
    let pid = pid_in(&stage.home.work().join("job.pid")).await;
    peer.leave_unread();
    drop(peer);
    stage.stop().await;
    assert!(!lives(pid));
    let logged = stage.home.logged("s");
    let settled = of_type(&logged, "job/settled");
    assert_eq!(settled.len(), 1);
    assert_eq!(settled[0]["data"]["detail"], "the daemon stopped");
    // The next life has nothing to add.
    stage.begin().await;
    let mut peer = stage.peer().await;
    stage.calls("job_list", &json!({}));
    stage.says(&["none"]);
    peer.prompt("s", "y").await;
    assert_eq!(result(&mut peer).await.0, "No background jobs.");
    peer.leave_unread();
    assert_eq!(of_type(&stage.home.logged("s"), "job/settled").len(), 1);
}

#[tokio::test]
async fn a_job_that_a_crash_left_without_an_end_gets_one_at_the_next_open() {
    let mut stage = Stage::new().await;
    let mut peer = stage.peer().await;
    stage.starts_job("echo $$ > job.pid; exec sleep 60");
    stage.says(&["started"]);
    peer.prompt("s", "x").await;
    let pid = pid_in(&stage.home.work().join("job.pid")).await;
    peer.leave_unread();
    drop(peer);
    stage.kill().await;
    stage.begin().await;
    let mut peer = stage.peer().await;
    stage.says(&["again"]);
    peer.prompt("s", "y").await;
    let logged = stage.home.logged("s");
    let settled = of_type(&logged, "job/settled");
    assert_eq!(settled.len(), 1);
    assert_eq!(settled[0]["data"]["status"], "killed");
    assert_eq!(settled[0]["data"]["detail"], "the daemon ended");
    assert_eq!(settled[0]["data"]["jobId"], of_type(&logged, "job/registered")[0]["data"]["jobId"]);
    peer.leave_unread();
    // The crashed daemon could not end it.
    within("the job's end", async {
        while lives(pid) {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn what_a_subagent_left_running_ends_with_its_call() {
    let stage = Stage::new().await;
    let mut peer = stage.peer().await;
    stage.calls("subagent", &json!({ "description": "look", "prompt": "look around" }));
    stage.starts_job("echo $$ > job.pid; sleep 600");
    stage.runs("setsid sleep 600 > /dev/null 2>&1 & echo $! > child.pid");
    stage.says(&["seen", "done"]);
    let running = peer.send_prompt("s", "x").await;
    let pids = [
        pid_in(&stage.home.work().join("job.pid")).await,
        pid_in(&stage.home.work().join("child.pid")).await,
    ];
    assert_eq!(peer.reply(running).await["result"]["status"], "ok");
    assert!(pids.iter().all(|pid| !lives(*pid)));
    let told = peer.take_aside();
    let at = |kind: &str| {
        let fits = |message: &Value| message["params"]["event"]["type"] == kind;
        told.iter().position(fits).unwrap()
    };
    assert_eq!(told[at("job/settled")]["params"]["event"]["data"]["detail"], "the subagent had ended");
    assert!(at("job/settled") < at("subagent/finished"));
    leave(peer).await;
}

#[tokio::test]
async fn too_many_jobs_are_refused_with_the_name_of_the_limit() {
    let stage = Stage::with("", "[limits]\njobs = 1\nchildren = 2").await;
    let mut peer = stage.peer().await;
    stage.starts_job("sleep 600");
    stage.starts_job("sleep 600");
    stage.runs("echo fits");
    stage.says(&["ok"]);
    assert_eq!(peer.prompt("s", "x").await["status"], "ok");
    result(&mut peer).await;
    let (refused, data) = result(&mut peer).await;
    assert!(refused.contains("(limits.jobs)") && data["message"]["isError"] == true, "{refused}");
    assert_eq!(result(&mut peer).await.0, "fits\n");
    // Another session's job takes the last place.
    stage.starts_job("sleep 600");
    stage.runs("echo does not fit");
    stage.says(&["ok"]);
    assert_eq!(peer.prompt("t", "x").await["status"], "ok");
    result(&mut peer).await;
    let (refused, _) = result(&mut peer).await;
    assert!(refused.contains("(limits.children)"), "{refused}");
    peer.leave_unread();
}

#[tokio::test]
async fn a_session_with_a_job_or_a_background_child_stays_in_memory() {
    let stage = Stage::with("", "[sessions]\nidle_unload = \"50ms\"").await;
    let mut peer = stage.peer().await;
    stage.starts_job("while ! test -e go; do sleep 0.01; done");
    stage.says(&["started"]);
    peer.prompt("job", "x").await;
    stage.runs("setsid sleep 600 > /dev/null 2>&1 & echo $! > child.pid");
    stage.says(&["started"]);
    peer.prompt("child", "x").await;
    stage.says(&["nothing"]);
    peer.prompt("none", "x").await;
    let child = pid_in(&stage.home.work().join("child.pid")).await;
    peer.leave_unread();
    loaded(&mut peer, &["child", "job"]).await;
    assert!(lives(child));
    stage.says(&["I have heard"]);
    std::fs::write(stage.home.work().join("go"), "").unwrap();
    loaded(&mut peer, &["child"]).await;
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(child.cast_signed()).unwrap(),
        rustix::process::Signal::KILL,
    )
    .unwrap();
    loaded(&mut peer, &[]).await;
}

/// Waits until exactly these sessions are in memory.
async fn loaded(peer: &mut Peer, expected: &[&str]) {
    within("the sessions in memory", async {
        loop {
            let status = peer.call("server/status", json!({})).await;
            let mut ids: Vec<_> = status["sessions"]
                .as_array()
                .unwrap()
                .iter()
                .map(|session| session["sessionId"].as_str().unwrap().to_owned())
                .collect();
            ids.sort();
            if ids == expected {
                return;
            }
        }
    })
    .await;
}

#[tokio::test]
async fn a_background_child_outlives_its_call_and_dies_with_its_session_or_the_daemon() {
    for by_close in [true, false] {
        let mut stage = Stage::new().await;
        let mut peer = stage.peer().await;
        // It holds the pipe, and goes on writing into it.
        stage.runs("(while :; do echo chat; sleep 0.01; done) & echo $! > child.pid; echo started");
        stage.says(&["ok"]);
        assert_eq!(peer.prompt("s", "x").await["status"], "ok");
        let (text, _) = result(&mut peer).await;
        assert!(text.contains("started\n"), "{text}");
        let child = pid_in(&stage.home.work().join("child.pid")).await;
        // It lives through a cancelled turn of later.
        let _live = stage.live();
        let running = peer.send_prompt("s", "y").await;
        peer.event("turn/start").await;
        peer.call("session/cancel", json!({ "sessionId": "s" })).await;
        peer.reply(running).await;
        assert!(lives(child));
        peer.leave_unread();
        if by_close {
            peer.call("session/close", json!({ "sessionId": "s" })).await;
        } else {
            drop(peer);
            stage.stop().await;
        }
        assert!(!lives(child));
    }
}

#[tokio::test]
async fn the_end_of_the_input_on_stdio_ends_jobs_and_background_children() {
    let stage = Stage::over(Transport::Stdio).await;
    let mut peer = stage.peer().await;
    stage.starts_job("echo $$ > job.pid; sleep 600");
    stage.runs("setsid sleep 600 > /dev/null 2>&1 & echo $! > child.pid");
    stage.says(&["ok"]);
    peer.prompt("s", "x").await;
    let pids = [
        pid_in(&stage.home.work().join("job.pid")).await,
        pid_in(&stage.home.work().join("child.pid")).await,
    ];
    peer.leave_unread();
    peer.finish().await;
    assert!(pids.iter().all(|pid| !lives(*pid)));
}

#[tokio::test]
async fn shutdown_on_stdio_ends_jobs_in_time() {
    let stage = Stage::over(Transport::Stdio).await;
    let mut peer = stage.peer().await;
    stage.starts_job("trap '' TERM; echo $$ > job.pid; while :; do sleep 1; done");
    stage.says(&["ok"]);
    peer.prompt("s", "x").await;
    let pid = pid_in(&stage.home.work().join("job.pid")).await;
    peer.leave_unread();
    peer.call("shutdown", json!({})).await;
    assert!(peer.exited().await.unwrap().success());
    assert!(!lives(pid));
    assert_eq!(of_type(&stage.home.logged("s"), "job/settled").len(), 1);
}

/// A reply of the model that fails would end the turn, and its job's end would wake nobody.
#[tokio::test]
async fn a_job_that_ends_while_its_turn_fails_is_told_with_the_next_prompt() {
    let stage = Stage::new().await;
    let mut peer = stage.peer().await;
    stage.starts_job("while ! test -e go; do sleep 0.01; done");
    let live = stage.live();
    let running = peer.send_prompt("s", "x").await;
    let id = data(&mut peer, "job/registered").await["jobId"].take();
    stage.model.request().await;
    std::fs::write(stage.home.work().join("go"), "").unwrap();
    data(&mut peer, "job/settled").await;
    peer.call("session/cancel", json!({ "sessionId": "s" })).await;
    drop(live);
    peer.reply(running).await;
    stage.says(&["I have heard"]);
    assert_eq!(peer.prompt("s", "y").await["status"], "ok");
    let asked = stage.model.requests();
    assert!(asked.last().unwrap().text().contains(&format!("job {} has ended", id.as_str().unwrap())));
    peer.leave_unread();
}
