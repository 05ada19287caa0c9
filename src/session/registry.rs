//! The registry: which sessions are in memory. One short mutex; a mailbox is made under it at once, and opening the log
//! is the actor's first act, so the order of arrival holds through a creation and everybody shares it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};

use tokio::sync::{Notify, watch};

use super::actor::Actor;
use super::feed::{Feed, Framing, SharedFeed};
use super::mailbox::{Command, Mailbox};
use super::{SessionError, Status};
use crate::clock::now_ms;
use crate::config::{ByteSize, Config};
use crate::event::SessionId;
use crate::mcp::Servers;
use crate::process::{Sandbox, Spool};
use crate::provider::registry::Providers;
use crate::shutdown::Scope;
use crate::store::SessionStore;
use crate::tool::Tools;

/// What all sessions are made with.
pub struct Parts {
    /// Where sessions live.
    pub store: Arc<dyn SessionStore>,
    /// The configuration in force; read at use, so that a reload applies.
    pub config: watch::Receiver<Arc<Config>>,
    /// How events become lines.
    pub framing: Framing,
    /// Where its tasks run.
    pub scope: Scope,
    /// The models.
    pub providers: Providers,
    /// Where output goes that is too long for memory.
    pub spool: Option<Spool>,
    /// What confines programs; none: one that knows the configuration alone.
    pub sandbox: Option<Sandbox>,
}

/// What all sessions share.
pub(crate) struct Shared {
    pub(crate) store: Arc<dyn SessionStore>,
    pub(crate) config: watch::Receiver<Arc<Config>>,
    pub(crate) providers: RwLock<Providers>,
    pub(crate) tools: RwLock<Tools>,
    pub(crate) framing: Framing,
    pub(crate) scope: Scope,
    pub(crate) spool: Option<Spool>,
    slots: Mutex<HashMap<SessionId, Slot>>,
    /// Grows with each session that comes into memory.
    loads: watch::Sender<u64>,
    stopping: AtomicBool,
    /// Sessions that are being made or opened right now.
    opening: AtomicUsize,
    opened: Notify,
}

enum Slot {
    /// An actor serves it.
    Live(Live),
    /// Only subscribers know it.
    Dormant(Weak<Feed>),
}

#[derive(Clone)]
struct Live {
    mailbox: Arc<Mailbox>,
    feed: SharedFeed,
    touched: u64,
}

impl Shared {
    /// Whether the disk has room for turns: below `store.reserve_bytes` none begins.
    ///
    /// # Errors
    /// [`SessionError::NoRoom`].
    pub(crate) fn check_room(&self) -> Result<(), SessionError> {
        let reserve = self.config.borrow().store.reserve_bytes;
        match self.store.room().map(ByteSize) {
            Some(free) if free < reserve => Err(SessionError::NoRoom { free, reserve }),
            Some(_) | None => Ok(()),
        }
    }

    pub(crate) fn new(parts: Parts) -> Self {
        let config = parts.config.borrow().clone();
        let sandbox = parts.sandbox.unwrap_or_else(|| Sandbox::of_config(&config));
        let servers = Servers::new(&config, &parts.scope, sandbox.clone());
        let mut tools = Tools::new(&config).with_servers(servers).confined(&config, sandbox);
        if let Some(spool) = parts.spool.clone() {
            tools = tools.spooling(&config, spool);
        }
        Self {
            store: parts.store,
            config: parts.config,
            providers: RwLock::new(parts.providers),
            tools: RwLock::new(tools),
            framing: parts.framing,
            scope: parts.scope,
            spool: parts.spool,
            slots: Mutex::default(),
            loads: watch::Sender::new(0),
            stopping: AtomicBool::new(false),
            opening: AtomicUsize::new(0),
            opened: Notify::new(),
        }
    }

    /// Puts reloaded providers, and tools of the configuration in force, in force.
    pub(crate) fn reload(&self, providers: Providers, sandbox: Sandbox) {
        *self.providers.write().unwrap_or_else(PoisonError::into_inner) = providers;
        let mut tools = self.tools.write().unwrap_or_else(PoisonError::into_inner);
        *tools = tools.reconfigured(&self.config(), sandbox);
    }

    /// The configuration in force.
    pub(crate) fn config(&self) -> Arc<Config> {
        self.config.borrow().clone()
    }

    /// The providers in force, with the keys that are stored now.
    pub(crate) fn providers(&self) -> Providers {
        let providers = self.providers.read().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(refreshed) = providers.refreshed() else { return providers };
        self.providers.write().unwrap_or_else(PoisonError::into_inner).clone_from(&refreshed);
        refreshed
    }

    /// The tools in force.
    pub(crate) fn tools(&self) -> Tools {
        self.tools.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether the daemon takes nothing new.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Takes nothing new from here on.
    pub(crate) fn stop_taking(&self) {
        self.stopping.store(true, Ordering::Release);
    }

    /// Hands a request to a session, bringing it into memory when it is not there.
    pub(crate) fn submit(self: &Arc<Self>, id: &SessionId, command: Command) {
        let mut slots = self.lock();
        if let Some(Slot::Live(live)) = slots.get_mut(id) {
            live.touched = now_ms();
            return live.mailbox.push(id, command);
        }
        let config = self.config();
        let max = config.limits.loaded_sessions;
        if !make_room(&slots, max) {
            drop(slots);
            return command.refuse(SessionError::TooManySessions { max });
        }
        let feed = match slots.get(id) {
            Some(Slot::Dormant(feed)) => feed.upgrade(),
            Some(Slot::Live(_)) | None => None,
        };
        let feed = feed.unwrap_or_else(|| self.new_feed(id));
        let mailbox = Arc::new(Mailbox::new(config.limits.mailbox));
        mailbox.push(id, command);
        let live = Live { mailbox: mailbox.clone(), feed: feed.clone(), touched: now_ms() };
        slots.insert(id.clone(), Slot::Live(live));
        self.opening.fetch_add(1, Ordering::AcqRel);
        drop(slots);
        let actor = Actor::new(self.clone(), id.clone(), mailbox, feed);
        self.scope.spawn(actor.run());
    }

    /// Hands a request to a session only if it is in memory; gives it back otherwise.
    pub(crate) fn submit_loaded(&self, id: &SessionId, command: Command) -> Result<(), Command> {
        let mut slots = self.lock();
        match slots.get_mut(id) {
            Some(Slot::Live(live)) => {
                live.touched = now_ms();
                live.mailbox.push(id, command);
                Ok(())
            }
            Some(Slot::Dormant(_)) | None => Err(command),
        }
    }

    /// The feed of a session in memory.
    pub(crate) fn feed(&self, id: &SessionId) -> Option<SharedFeed> {
        match self.lock().get(id)? {
            Slot::Live(live) => Some(live.feed.clone()),
            Slot::Dormant(feed) => feed.upgrade(),
        }
    }

    /// Keeps a feed for a session that only subscribers know; gives back the one that is there already, if any.
    pub(crate) fn keep_dormant(&self, feed: SharedFeed) -> SharedFeed {
        let mut slots = self.lock();
        let known = match slots.get(feed.session()) {
            Some(Slot::Live(live)) => Some(live.feed.clone()),
            Some(Slot::Dormant(weak)) => weak.upgrade(),
            None => None,
        };
        if let Some(known) = known {
            return known;
        }
        slots.retain(|_, slot| !matches!(slot, Slot::Dormant(weak) if weak.strong_count() == 0));
        slots.insert(feed.session().clone(), Slot::Dormant(Arc::downgrade(&feed)));
        feed
    }

    /// A feed for a session whose log was not looked at yet.
    pub(crate) fn new_feed(&self, id: &SessionId) -> SharedFeed {
        Arc::new(Feed::new(id.clone(), self.framing, self.config.borrow().limits.feed_bytes.bytes()))
    }

    /// The feeds of the sessions in memory.
    pub(crate) fn loaded(&self) -> Vec<SharedFeed> {
        let slots = self.lock();
        let live = slots.values().filter_map(|slot| match slot {
            Slot::Live(live) => Some(live.feed.clone()),
            Slot::Dormant(_) => None,
        });
        live.collect()
    }

    /// Of the sessions in memory the most requests that wait for one, and the most bytes of recent events of one.
    pub(crate) fn fullest(&self) -> (usize, usize) {
        let slots = self.lock();
        let live = slots.values().filter_map(|slot| match slot {
            Slot::Live(live) => Some((live.mailbox.ordinary(), live.feed.tail_bytes())),
            Slot::Dormant(_) => None,
        });
        live.fold((0, 0), |most, one| (most.0.max(one.0), most.1.max(one.1)))
    }

    /// Changes each time a session comes into memory.
    pub(crate) fn loads(&self) -> watch::Receiver<u64> {
        self.loads.subscribe()
    }

    /// Waits until no session is being made or opened.
    pub(crate) async fn openings_done(&self) {
        loop {
            let mut opened = std::pin::pin!(self.opened.notified());
            opened.as_mut().enable();
            if self.opening.load(Ordering::Acquire) == 0 {
                return;
            }
            opened.await;
        }
    }

    /// An actor has opened its session, or won't; counted since [`Shared::submit`].
    pub(super) fn opening_done(&self) {
        self.opening.fetch_sub(1, Ordering::AcqRel);
        self.opened.notify_waiters();
    }

    /// A session came into memory.
    pub(super) fn announce(&self) {
        self.loads.send_modify(|count| *count += 1);
    }

    /// Removes a session whose actor has let go of its log. Says no when requests came meanwhile: the actor goes on
    /// with a feed of its next life.
    pub(super) fn remove(
        &self,
        id: &SessionId,
        mailbox: &Mailbox,
        keep_feed: bool,
    ) -> Result<(), SharedFeed> {
        let mut slots = self.lock();
        if !mailbox.is_empty() {
            let Some(Slot::Live(live)) = slots.get_mut(id) else { return Ok(()) };
            if !keep_feed {
                live.feed = self.new_feed(id);
            }
            return Err(live.feed.clone());
        }
        let removed = slots.remove(id);
        if let (true, Some(Slot::Live(live))) = (keep_feed, removed)
            && Arc::strong_count(&live.feed) > 2
        {
            slots.insert(id.clone(), Slot::Dormant(Arc::downgrade(&live.feed)));
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SessionId, Slot>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Asks idle sessions to leave memory, the least recently used first, until there is room for one more when those that
/// were asked have left. Says whether there will be.
fn make_room(slots: &HashMap<SessionId, Slot>, max: usize) -> bool {
    let live = || {
        slots.iter().filter_map(|(id, slot)| match slot {
            Slot::Live(live) => Some((id, live)),
            Slot::Dormant(_) => None,
        })
    };
    let staying = live().filter(|(_, live)| !live.mailbox.is_leaving()).count();
    let excess = (staying + 1).saturating_sub(max);
    if excess == 0 {
        return true;
    }
    let is_idle = |live: &Live| {
        live.feed.position().1 == Status::Idle
            && live.mailbox.is_empty()
            && !live.mailbox.is_held()
            && !live.mailbox.is_leaving()
    };
    let mut idle: Vec<_> = live().filter(|(_, live)| is_idle(live)).collect();
    idle.sort_unstable_by_key(|(_, live)| live.touched);
    for (id, live) in idle.iter().take(excess) {
        live.mailbox.ask_to_leave(id);
    }
    idle.len() >= excess
}
