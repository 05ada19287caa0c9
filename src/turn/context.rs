//! What a step tells the model besides the conversation: our instructions, the volatile facts, the request's header.

use std::path::Path;
use std::sync::Arc;

use serde::Serialize;

use super::instructions::Instructions;
use super::{FactEvent, Lost, Turn};
use crate::event::{
    Block, EventBody, Failure, Message, PermissionMode, RequestConfig, RequestContext, RequestHeader,
    RequestHeaderBody, Role, Seq, SessionTitle, Source, SourceKind, StepMark, SystemMessage, TitleSource,
    ToolSpec,
};
use crate::tool::{Offer, Place};

/// Our instructions: short, and the same for every session, so that prefix caches hit.
const SYSTEM_PROMPT: &str = "You are a coding agent. You work for a person in their working directory, with the tools \
you are given.

Look before you answer: read the files that matter instead of guessing what is in them. Do what was asked and no more; \
when something is unclear and the choice matters, say which choice you made. Check your work with the project's own \
tests and tools where there are any. Never invent the output of a command.

Say what you did and what you found, briefly and plainly. Name files by path. When something failed or is unfinished, \
say so first.";

/// Longest title in characters.
const TITLE_CHARS_MAX: usize = 60;

#[derive(Serialize)]
struct Section {
    name: &'static str,
    text: String,
}

impl Turn {
    /// Begins a step: takes over what clients have changed since the last one. Says why no model may be called, if so.
    pub(super) async fn begin_step(&mut self, step: u32) -> Result<Option<Failure>, Lost> {
        let start = EventBody::StepStart(StepMark { turn: self.number, step });
        let fresh = *self.facts.tell_and_refresh(vec![start.into()]).await?;
        (self.route, self.cwd, self.mode) = (fresh.route, fresh.cwd, fresh.mode);
        self.offer = if self.route.abilities.tools {
            let place = Place { cwd: &self.cwd, delegated: self.delegate.is_none() };
            // Servers that start are waited for; a cancel is not kept waiting.
            tokio::select! {
                biased;
                offer = self.tools.offer(&place) => offer,
                () = self.cancel.cancelled() => self.offer.clone(),
            }
        } else {
            Offer::none()
        };
        Ok(fresh.exhausted)
    }

    /// Opens a step: what is new for the model goes to the log before the model is asked. Stable parts come first.
    pub(super) async fn open_step(&mut self, step: u32, reminder: Option<String>) -> Result<(), Lost> {
        let mut events = Vec::new();
        self.say_system(step, &mut events);
        let around = self.look_around(step == 1).await;
        self.say_instructions(&mut events, around.instructions);
        let mut prompt_at = None;
        if step == 1 {
            prompt_at = Some(events.len());
            self.say(&mut events, (*self.prompt).clone());
        }
        let sandbox = self.tools.sandbox().told(self.mode, &self.cwd).await;
        self.say_context(&mut events, around.branch, &sandbox);
        if let Some(text) = reminder {
            let source = Source::of(SourceKind::RepeatToolReminder);
            self.say(&mut events, Message::new(Role::User, source, vec![Block::text(text)]));
        }
        self.push_header(&mut events);
        let (first, claimed) = self.facts.tell_and_claim(events).await?;
        self.conversation.extend(claimed);
        if let (false, Some(at)) = (self.titled, prompt_at) {
            self.titled = true;
            let title = title_of(&self.prompt.text());
            let message_seqs = vec![Seq(first.0 + at as u64)];
            let source = TitleSource { kind: "fallback".to_owned() };
            self.tell(EventBody::SessionTitle(SessionTitle { title, message_seqs, source })).await?;
        }
        Ok(())
    }

    /// Tells the model again what a summary has taken away, in the middle of a step.
    pub(super) async fn remind(&mut self, step: u32) -> Result<(), Lost> {
        let mut events = Vec::new();
        self.say_system(step, &mut events);
        let around = self.look_around(true).await;
        self.say_instructions(&mut events, around.instructions);
        let sandbox = self.tools.sandbox().told(self.mode, &self.cwd).await;
        self.say_context(&mut events, around.branch, &sandbox);
        if !events.is_empty() {
            self.facts.tell(events).await?;
        }
        Ok(())
    }

    fn say_system(&mut self, step: u32, events: &mut Vec<FactEvent>) {
        if self.system_text() == Some(SYSTEM_PROMPT) {
            return;
        }
        let source = Source::of(SourceKind::SystemPrompt);
        let message = Message::new(Role::System, source, vec![Block::text(SYSTEM_PROMPT)]);
        self.set_system(&message);
        events.push(EventBody::SystemMessage(SystemMessage { turn: self.number, step, message }).into());
    }

    fn say_instructions(&mut self, events: &mut Vec<FactEvent>, found: Vec<Instructions>) {
        for instructions in found {
            if let Some(message) = self.instructions_message(instructions) {
                self.say(events, message);
            }
        }
    }

    fn say_context(&mut self, events: &mut Vec<FactEvent>, branch: Option<String>, sandbox: &str) {
        if let Some(context) = self.runtime_context(branch, sandbox) {
            self.say(events, context);
        }
    }

    fn system_text(&self) -> Option<&str> {
        let first = self.conversation.first().filter(|message| message.role == Role::System)?;
        match first.content.as_slice() {
            [Block::Text { text }] => Some(text),
            _ => None,
        }
    }

    fn set_system(&mut self, message: &Message) {
        let message = Arc::new(message.clone());
        match self.conversation.first_mut() {
            Some(first) if first.role == Role::System => *first = message,
            _ => self.conversation.insert(0, message),
        }
    }

    fn say(&mut self, events: &mut Vec<FactEvent>, message: Message) {
        self.conversation.push(Arc::new(message.clone()));
        events.push(EventBody::UserMessage(message).into());
    }

    /// The volatile facts, when they are not what the model was told last.
    fn runtime_context(&self, branch: Option<String>, sandbox: &str) -> Option<Message> {
        let section = |name, text| Section { name, text };
        let mut sections = vec![
            section("working-directory:current", directory_text(&self.cwd)),
            section("date:current", format!("Today is {}.", jiff::Zoned::now().strftime("%Y-%m-%d"))),
        ];
        sections.extend(branch.map(|branch| section("git:branch", branch)));
        sections.push(section("sandbox:policy", format!("{} {sandbox}", mode_text(self.mode))));
        let texts: Vec<&str> = sections.iter().map(|section| section.text.as_str()).collect();
        let text = texts.join("\n");
        let told =
            self.conversation.iter().rev().find(|message| message.source.kind == SourceKind::RuntimeContext);
        if told.is_some_and(|told| told.text() == text) {
            return None;
        }
        let mut source = Source::of(SourceKind::RuntimeContext);
        source.form = Some("snapshot".to_owned());
        source.sections = serde_json::value::to_raw_value(&sections).ok();
        Some(Message::new(Role::User, source, vec![Block::text(text)]))
    }

    fn push_header(&mut self, events: &mut Vec<FactEvent>) {
        let route = &self.route;
        let config = RequestConfig {
            provider: route.provider.clone(),
            model: route.model.clone(),
            max_tokens: route.max_tokens,
            reasoning_effort: route.reasoning_effort.clone(),
        };
        let tools = self.offer.specs();
        let same = self.header.as_ref().is_some_and(|old| same_header(&old.header, &config, tools));
        if !same {
            let reason = if self.header.is_some() { "change" } else { self.header_reason };
            let header = RequestHeaderBody { config, tools: tools.to_vec() };
            let header = RequestHeader { header, reason: reason.to_owned() };
            self.header = Some(Arc::new(header.clone()));
            events.push(EventBody::RequestHeader(header).into());
        }
        let context = RequestContext {
            provider: route.provider.clone(),
            model: route.model.clone(),
            context_window: route.abilities.context_window,
        };
        if self.context.as_ref() != Some(&context) {
            self.context = Some(context.clone());
            events.push(EventBody::RequestContext(context).into());
        }
    }
}

fn same_header(old: &RequestHeaderBody, config: &RequestConfig, tools: &[ToolSpec]) -> bool {
    old.config == *config
        && old.tools.len() == tools.len()
        && old.tools.iter().zip(tools).all(|(old, new)| {
            old.name == new.name
                && old.description == new.description
                && old.parameters.get() == new.parameters.get()
        })
}

fn directory_text(cwd: &Path) -> String {
    format!("The working directory is {}.", cwd.display())
}

fn mode_text(mode: PermissionMode) -> &'static str {
    match mode {
        PermissionMode::ReadOnly => "Permission mode: read-only. Change nothing.",
        PermissionMode::WorkspaceWrite => {
            "Permission mode: workspace-write. Change files in the working directory only."
        }
        PermissionMode::FullAccess => "Permission mode: full access.",
    }
}

/// A title from a prompt: its words on one line, cut at a word.
fn title_of(prompt: &str) -> String {
    let mut title = String::new();
    for word in prompt.split_whitespace() {
        let room = TITLE_CHARS_MAX.saturating_sub(title.chars().count() + 1);
        if title.is_empty() {
            title.extend(word.chars().take(TITLE_CHARS_MAX));
        } else if word.chars().count() <= room {
            title.push(' ');
            title.push_str(word);
        } else {
            break;
        }
    }
    if title.is_empty() { "untitled".to_owned() } else { title }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_title_is_one_line_cut_at_a_word() {
        assert_eq!(title_of("  fix\n the\tbug "), "fix the bug");
        assert_eq!(title_of(&"word ".repeat(40)).chars().count(), 59);
        assert_eq!(title_of(&"x".repeat(100)).len(), TITLE_CHARS_MAX);
        assert_eq!(title_of(" \n"), "untitled");
    }
}
