//! How a request reaches the daemon's thread: a bounded queue of closures, and a bell.
//!
//! The daemon sleeps in poll(2); a byte in a socket pair wakes it, so that a question waits for the
//! work under way and not for the next tick. It answers within a budget of time a turn: routes and
//! packets go first.

use std::io::{Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{Mutex, OwnedMutexGuard, mpsc, oneshot, watch};

use super::error::ApiError;
use crate::daemon::Daemon;

/// Questions that may wait; who asks more waits for room.
const WAITING: usize = 64;
/// Time a turn of the daemon spends on answers before it looks at routes again. A question is never
/// interrupted, so each must be short by itself.
const BUDGET: Duration = Duration::from_millis(2);

/// What is to be done on the daemon's thread.
pub(crate) type Question = Box<dyn FnOnce(&mut Daemon) + Send>;

/// The asking end.
#[derive(Clone)]
pub(crate) struct Ask {
    queue: mpsc::Sender<Question>,
    bell: Arc<UnixStream>,
    news: watch::Receiver<u64>,
    changes: Arc<Mutex<()>>,
}

/// The daemon's end.
pub(crate) struct Questions {
    queue: mpsc::Receiver<Question>,
    bell: UnixStream,
    news: watch::Sender<u64>,
}

/// Both ends.
///
/// # Errors
/// When there are no file descriptors left.
pub(crate) fn channel() -> std::io::Result<(Ask, Questions)> {
    let (ring, bell) = UnixStream::pair()?;
    ring.set_nonblocking(true)?;
    bell.set_nonblocking(true)?;
    let (to, queue) = mpsc::channel(WAITING);
    let (tell, news) = watch::channel(0);
    let ask = Ask { queue: to, bell: Arc::new(ring), news, changes: Arc::default() };
    Ok((ask, Questions { queue, bell, news: tell }))
}

impl Ask {
    /// Number of the latest event, as it grows.
    pub(crate) fn news(&self) -> watch::Receiver<u64> {
        self.news.clone()
    }

    /// Waits for the right to change features or their lists, which takes longer than a request may; it lasts until the
    /// guard is dropped.
    pub(crate) async fn changes(&self) -> OwnedMutexGuard<()> {
        self.changes.clone().lock_owned().await
    }

    /// Runs `question` on the daemon's thread. A question whose asker went away is not run.
    ///
    /// # Errors
    /// When the daemon is ending.
    pub(crate) async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&mut Daemon) -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        let (to, answer) = oneshot::channel();
        let question: Question = Box::new(move |daemon| {
            if !to.is_closed() {
                // Who asked may have gone meanwhile: what was done is done.
                let _ = to.send(question(daemon));
            }
        });
        self.queue.send(question).await.map_err(|_| ApiError::stopping())?;
        // A full bell rings already.
        let _ = (&*self.bell).write(&[1]);
        answer.await.map_err(|_| ApiError::stopping())
    }
}

impl Questions {
    /// The latest event has this number.
    pub(crate) fn tell(&self, number: u64) {
        self.news.send_if_modified(|known| std::mem::replace(known, number) != number);
    }

    /// For poll: readable when there is a question.
    pub(crate) fn fd(&self) -> RawFd {
        self.bell.as_raw_fd()
    }

    /// Whether there are any.
    pub(crate) fn waiting(&self) -> bool {
        !self.queue.is_empty()
    }

    /// The next question, while there is one and `started` is not too long ago.
    pub(crate) fn next(&mut self, started: Instant) -> Option<Question> {
        if started.elapsed() > BUDGET {
            return None;
        }
        match self.queue.try_recv() {
            Ok(question) => Some(question),
            Err(_) => {
                // Silent first, looked again after: a question in between rings again.
                while matches!((&self.bell).read(&mut [0; 64]), Ok(n) if n > 0) {}
                self.queue.try_recv().ok()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bell_rings_until_all_is_answered_and_a_late_turn_answers_nothing() {
        let (ask, mut questions) = channel().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        for _ in 0..3 {
            runtime.block_on(ask.queue.send(Box::new(|_| {}))).unwrap();
            (&*ask.bell).write_all(&[1]).unwrap();
        }
        let ringing = |questions: &Questions| {
            let before = Instant::now();
            crate::sys::poll(&[questions.fd()], Duration::from_millis(200));
            before.elapsed() < Duration::from_millis(100)
        };
        assert!(ringing(&questions));
        let late = Instant::now().checked_sub(Duration::from_secs(1)).unwrap();
        assert!(questions.next(late).is_none() && ringing(&questions));
        for _ in 0..3 {
            assert!(questions.next(Instant::now()).is_some());
        }
        assert!(questions.next(Instant::now()).is_none() && !ringing(&questions));
        drop(questions);
        let gone = runtime.block_on(ask.ask(|_| ()));
        assert_eq!(gone, Err(ApiError::stopping()));
    }
}
