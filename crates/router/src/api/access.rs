//! Who is at the other end of a control socket, and what that user may do.
//!
//! The kernel reports user, groups and process of a client as they were when it connected (SO_PEERCRED, SO_PEERGROUPS). Root
//! and the daemon's own user may do all; members of one group may read, of another one also change. Each path of the API
//! states which of these it needs, and every request for a change is noted with its user, process and command.

use std::fs;
use std::sync::Arc;

use axum::Extension;
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use tokio::net::UnixStream;
use utoipa::ToSchema;

use super::about::Noted;
use super::backend::{Backend, Requests};
use super::error::{ApiError, Code};
use crate::sys;

/// Longest command line that is kept, in characters.
const LONGEST_COMMAND: usize = 300;

/// User and process behind a request: as the kernel reports them, with what the process states about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct Requester {
    /// Number of the user.
    pub(crate) uid: u32,
    /// Number of the process; 0 where it is of another namespace.
    pub(crate) pid: i32,
    /// Command line of the process, as the process itself states it; empty for a client that may not change anything.
    pub(crate) command: String,
}

impl Requester {
    /// The process of this number, with its command line of this moment.
    pub(crate) fn new(uid: u32, pid: i32) -> Self {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words = line.split(|&byte| byte == 0).filter(|word| !word.is_empty());
        let words: Vec<_> = words.map(String::from_utf8_lossy).collect();
        // As it is printed on terminals.
        let shown = |c: char| if c.is_control() { '?' } else { c };
        let mut command: String = words.join(" ").chars().map(shown).collect();
        if let Some((at, _)) = command.char_indices().nth(LONGEST_COMMAND) {
            command.truncate(at);
            command += "...";
        }
        Self { uid, pid, command }
    }

    /// The daemon itself, for this reason.
    pub(crate) fn daemon(reason: &str) -> Self {
        let pid = i32::try_from(std::process::id()).unwrap_or_default();
        Self { uid: sys::user(), pid, command: reason.to_owned() }
    }
}

impl std::fmt::Display for Requester {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "uid {}, pid {}", self.uid, self.pid)?;
        if self.command.is_empty() { Ok(()) } else { write!(f, ", `{}`", self.command) }
    }
}

/// Right of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Access {
    Nothing,
    Read,
    Write,
}

/// A group of users.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) name: String,
    pub(crate) id: u32,
}

impl Group {
    /// The group of this name in `/etc/group`, or of this number.
    pub(crate) fn find(name: &str) -> Option<Self> {
        let named = |id| Self { name: name.to_owned(), id };
        if let Ok(id) = name.parse() {
            return Some(named(id));
        }
        let groups = fs::read_to_string("/etc/group").unwrap_or_default();
        let found = groups.lines().map(|line| line.split(':').collect::<Vec<_>>());
        let mut found = found.filter(|fields| fields.first() == Some(&name));
        found.find_map(|fields| fields.get(2)?.parse().ok()).map(named)
    }

    /// The name of a group by its number, or the number.
    pub(crate) fn name_of(id: u32) -> String {
        let groups = fs::read_to_string("/etc/group").unwrap_or_default();
        let number = id.to_string();
        let mut found = groups.lines().map(|line| line.split(':').collect::<Vec<_>>());
        let found = found.find(|fields| fields.get(2) == Some(&&*number));
        found.map_or(number.clone(), |fields| fields[0].to_owned())
    }
}

/// The groups whose members may use the control sockets beside root and the daemon's own user.
#[derive(Clone, Debug, Default)]
pub(crate) struct Groups {
    pub(crate) read: Option<Group>,
    pub(crate) write: Option<Group>,
}

impl Groups {
    fn access(&self, uid: u32, groups: &[u32]) -> Access {
        let is_in = |group: &Option<Group>| group.as_ref().is_some_and(|g| groups.contains(&g.id));
        match (uid == 0 || uid == sys::user() || is_in(&self.write), is_in(&self.read)) {
            (true, _) => Access::Write,
            (false, true) => Access::Read,
            (false, false) => Access::Nothing,
        }
    }

    /// The users with this access, in words.
    fn users(&self, access: Access) -> String {
        let owner = match sys::user() {
            0 => "root".to_owned(),
            uid => format!("root and uid {uid}"),
        };
        let member = |group: &Group| format!("members of group {}", group.name);
        let write = self.write.as_ref().map(member);
        let read = self.read.as_ref().filter(|_| access == Access::Read).map(member);
        let groups: Vec<String> = read.into_iter().chain(write).collect();
        if groups.is_empty() { owner } else { format!("{} and {owner}", groups.join(", ")) }
    }
}

/// A client, and what it may do.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    pub(crate) uid: u32,
    pid: i32,
    pub(crate) access: Access,
    /// Whether the socket is one for reading.
    read_only: bool,
    groups: Arc<Groups>,
}

impl Peer {
    /// The client of a connection over the socket, or over the one for reading.
    pub(crate) fn of(stream: &UnixStream, read_only: bool, groups: &Arc<Groups>) -> Option<Self> {
        let peer = stream.peer_cred().ok()?;
        let mut of_peer = sys::peer_groups(stream).unwrap_or_default();
        of_peer.push(peer.gid());
        let known = groups.access(peer.uid(), &of_peer);
        let access = if read_only { known.min(Access::Read) } else { known };
        let (uid, pid) = (peer.uid(), peer.pid().unwrap_or(0));
        Some(Self { uid, pid, access, read_only, groups: groups.clone() })
    }

    /// A client of the TCP listener: nobody that the kernel knows.
    pub(super) fn over_tcp(groups: &Arc<Groups>) -> Self {
        let groups = groups.clone();
        Self { uid: Self::NOBODY, pid: 0, access: Access::Read, read_only: true, groups }
    }

    /// Number that no user has.
    const NOBODY: u32 = u32::MAX;

    #[cfg(test)]
    pub(super) fn with(uid: u32, access: Access) -> Self {
        Self { uid, pid: 0, access, read_only: false, groups: Arc::default() }
    }

    /// Refuses what needs more access than the client has.
    ///
    /// # Errors
    /// Who has it.
    pub(crate) fn check(&self, needed: Access) -> Result<(), ApiError> {
        if self.access >= needed {
            return Ok(());
        }
        let users = self.groups.users(needed);
        let words = match (needed, self.read_only) {
            (Access::Write, true) => {
                format!("this socket is for reading: over the control socket {users} may change")
            }
            (Access::Write, false) => format!("uid {} may not do this: {users} may", self.uid),
            _ => format!("uid {} may not use this socket: {users} may", self.uid),
        };
        Err(ApiError::new(Code::Forbidden, words))
    }
}

/// Serves a request that reads.
pub(super) async fn read(peer: Extension<Peer>, request: Request, next: Next) -> Response {
    with(&peer, Access::Read, request, next).await
}

/// Serves a request that changes nothing, but names files that the daemon reads, or shows packets.
pub(super) async fn admin(peer: Extension<Peer>, request: Request, next: Next) -> Response {
    with(&peer, Access::Write, request, next).await
}

async fn with(peer: &Peer, needed: Access, request: Request, next: Next) -> Response {
    match peer.check(needed) {
        Ok(()) => next.run(request).await,
        Err(error) => error.into_response(),
    }
}

/// Serves a request for a change, and notes who made it. It is carried out and noted also where the client leaves meanwhile.
pub(super) async fn write(
    Extension(peer): Extension<Peer>,
    Extension(requests): Extension<Requests>,
    mut request: Request,
    next: Next,
) -> Response {
    let named = format!("{} {}", request.method(), request.uri().path());
    let refused = peer.check(Access::Write).err();
    let by = match refused {
        None => Requester::new(peer.uid, peer.pid),
        // A process can make a reader of its command line wait: nobody waits for those who may not change anything.
        Some(_) => Requester { uid: peer.uid, pid: peer.pid, command: String::new() },
    };
    request.extensions_mut().insert(by.clone());
    let noted = Noted::default();
    request.extensions_mut().insert(noted.clone());
    let served = tokio::spawn(async move {
        let response = match refused {
            None => next.run(request).await,
            Some(error) => error.into_response(),
        };
        let error = response.extensions().get::<ApiError>().cloned();
        // A daemon that is stopping notes nothing any more.
        let subject = noted.take();
        let note =
            move |backend: &mut dyn Backend| backend.note_request(by, named, &subject, error);
        let _ = requests.call(note).await;
        response
    });
    served.await.unwrap_or_else(|_| ApiError::stopping().into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_decide_and_are_named() {
        let group = |name: &str, id| Some(Group { name: name.to_owned(), id });
        let groups = Groups { read: group("readers", 7), write: group("admins", 8) };
        let other = sys::user() + 1;
        for (uid, of, access) in [
            (0, &[][..], Access::Write),
            (sys::user(), &[], Access::Write),
            (other, &[8, 7], Access::Write),
            (other, &[6, 7], Access::Read),
            (other, &[6], Access::Nothing),
        ] {
            assert_eq!(groups.access(uid, of), access, "{uid} {of:?}");
        }
        assert_eq!(Groups::default().access(other, &[0]), Access::Nothing);
        assert!(groups.users(Access::Read).starts_with("members of group readers, members of"));
        assert!(groups.users(Access::Write).starts_with("members of group admins and root"));
        assert_eq!(Group::find("root").map(|group| group.id), Some(0));
        assert_eq!(Group::find("4242").map(|group| group.id), Some(4242));
        assert_eq!((Group::find("no such"), Group::name_of(0)), (None, "root".to_owned()));
    }

    #[test]
    fn a_requester_is_a_process_with_its_command() {
        let pid = i32::try_from(std::process::id()).unwrap();
        let by = Requester::new(5, pid);
        assert!(by.command.contains("fingerpost_router") && !by.command.contains('\0'), "{by}");
        assert_eq!(Requester::new(5, 0).command, "");
    }
}
