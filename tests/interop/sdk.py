"""The official Python SDK against `dshd --profile sdk`, as its users use it.

usage: sdk.py DSHD WORKDIR BASE_URL

The model server at BASE_URL answers on the Anthropic wire: it calls an offered tool once for a prompt, then answers in
text. Prints a line for each scenario; a scenario that fails raises.
"""

import json
import sys
import threading
import urllib.request
from pathlib import Path

from deepseek_harness import DeepSeekHarness
from deepseek_harness.errors import HarnessError, JsonRpcError

dshd, work, base_url = sys.argv[1:4]
cwd = Path(work) / "cwd"
cwd.mkdir(parents=True, exist_ok=True)
(cwd / "note.txt").write_text("a note\n")


def harness(home="home", **options):
    options.setdefault("base_url", base_url)
    options.setdefault("api_key", "sk-test-key")
    return DeepSeekHarness(
        dsh_bin=dshd,
        dsh_home=str(Path(work) / home),
        cwd=str(cwd),
        request_timeout_seconds=60.0,
        **options,
    )


def types(result):
    return [event["type"] for event in result.events]


def check(condition, what, detail=""):
    if not condition:
        raise AssertionError(f"{what}: {detail}")


def well_formed(result):
    """What the SDK's readers rely on."""
    seqs = [event["seq"] for event in result.events]
    check(seqs == list(range(seqs[0], seqs[0] + len(seqs))), "events are dense", seqs)
    check(all("transient" not in event for event in result.events), "no transient events")
    first = result.events[0]
    check(first["type"] == "agent/inbox/spliced" and first["data"]["inserted"], "the receipt comes first", first)
    last = result.notifications[-1]
    check(last.method == "session.status" and last.payload["status"] == "idle", "idle comes last", last)
    statuses = [n.payload["status"] for n in result.notifications if n.method == "session.status"]
    check(statuses == ["running", "idle"], "running then idle, once each", statuses)


def turns():
    with harness() as dsh:
        session = dsh.start_session("py1")
        first = session.run("hello from the sdk")
        well_formed(first)
        check(first.finish_reason == "completed", "a turn completes", first.finish_reason)
        check(first.final_response, "there is an answer")
        check("tool/call" in types(first) and "tool/result" in types(first), "the tool ran", types(first))
        second = session.run("and again")
        well_formed(second)
        check(second.finish_reason == "completed", "a second turn completes", second.finish_reason)
        check(second.events[0]["seq"] == first.events[-1]["seq"] + 1, "the history goes on")
        check(session.get_working_directory() == str(cwd.resolve()), "the working directory")
        try:
            dsh.resume_session("nope")
            raise AssertionError("a missing session was resumed")
        except JsonRpcError as error:
            check("nope" in error.message, "the error names the session", error.message)
        return first.final_response, second.events[-1]["seq"]


def restart(last_seq):
    with harness() as dsh:
        session = dsh.resume_session("py1")
        again = session.run("after a restart")
        well_formed(again)
        check(again.finish_reason == "completed", "a resumed turn completes", again.finish_reason)
        check(again.events[0]["seq"] > last_seq, "the history goes on", again.events[0])


def two_sessions():
    with harness() as dsh:
        results = {}

        def run(name):
            results[name] = dsh.start_session(name).run(f"for {name}")

        threads = [threading.Thread(target=run, args=(name,)) for name in ("left", "right")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        for name in ("left", "right"):
            well_formed(results[name])
            check(results[name].finish_reason == "completed", name, results[name].finish_reason)
            said = json.dumps(results[name].events)
            other = "right" if name == "left" else "left"
            check(f"for {other}" not in said, "sessions do not mix", name)


def behave(*behaviors):
    """Queues what the model server does at the next requests."""
    root = base_url.rsplit("/", 1)[0]
    body = json.dumps({"behaviors": behaviors}).encode()
    request = urllib.request.Request(f"{root}/_llmock/scenario", data=body, method="POST")
    request.add_header("content-type", "application/json")
    urllib.request.urlopen(request, timeout=10).close()


def delegation():
    """A child's notifications reach the run of its parent, in order."""
    with harness(home="delegation") as dsh:
        call = {"name": "subagent", "arguments": {"description": "say hi", "prompt": "say hi to me"}}
        behave({"type": "reply", "text": "I delegate.", "tool_calls": [call]},
               {"type": "reply", "text": "hi from the child"}, {"type": "reply", "text": "it said hi"})
        result = dsh.start_session("parent").run("delegate")
        check(result.finish_reason == "completed", "the parent completes", result.finish_reason)
        check(result.final_response == "it said hi", "the parent's own answer", result.final_response)
        methods = [n.method for n in result.notifications]
        started, finished = methods.index("subagent.started"), methods.index("subagent.finished")
        payload = result.notifications[finished].payload
        child = payload["childSessionId"]
        check(payload["status"] == "ok" and payload["stopReason"] == "completed", "the child's end", payload)
        check(payload["lastAssistantMessage"][0]["text"] == "hi from the child", "its last message", payload)
        of_child = [at for at, n in enumerate(result.notifications) if n.payload.get("sessionId") == child]
        check(started < of_child[0] and of_child[-1] < finished, "the child's events lie between", methods)


def no_key():
    with harness(home="keyless", api_key="") as dsh:
        failed = dsh.start_session("keyless").run("hello")
        check(failed.finish_reason == "error", "a missing key is told at turn time", failed.finish_reason)
        code = failed.events[-1]["data"]["reason"]["error"]["code"]
        check(code == "MISSING_CREDENTIAL", "the code", code)


def unreachable():
    with harness(home="unreachable", base_url="http://127.0.0.1:9", env={
        "DSHD_PROVIDERS__DEEPSEEK_OFFICIAL__MAX_RETRIES": "1",
        "DSHD_PROVIDERS__DEEPSEEK_OFFICIAL__RETRY_BASE": "10ms",
    }) as dsh:
        failed = dsh.start_session("unreachable").run("hello")
        check(failed.finish_reason == "error", "a model failure is a turn's reason", failed.finish_reason)
        check("llm/retry" in types(failed), "the retry is told", types(failed))


def shutdown_in_mid_turn():
    dsh = harness(home="mid", env={"DSHD_PROVIDERS__DEEPSEEK_OFFICIAL__MAX_RETRIES": "5",
                                   "DSHD_PROVIDERS__DEEPSEEK_OFFICIAL__RETRY_BASE": "10s"}, base_url="http://127.0.0.1:9")
    dsh.start()
    retried = threading.Event()
    outcome = []

    def on_notification(notification):
        event = notification.payload.get("event") or {}
        if event.get("type") == "llm/retry":
            retried.set()

    def run():
        try:
            outcome.append(dsh.start_session("mid").run("hello", on_notification=on_notification))
        except HarnessError as error:
            outcome.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    check(retried.wait(30), "the turn is under way")
    process = dsh.client._proc
    dsh.close()
    thread.join(30)
    check(process.returncode == 0, "shutdown in mid-turn ends well and in time", process.returncode)
    check(outcome, "the waiting run was told")


answer, last = turns()
print("turns ok:", answer[:40].replace("\n", " "))
restart(last)
print("restart ok")
two_sessions()
print("two sessions ok")
delegation()
print("delegation ok")
no_key()
print("no key ok")
unreachable()
print("unreachable ok")
shutdown_in_mid_turn()
print("shutdown in mid-turn ok")
