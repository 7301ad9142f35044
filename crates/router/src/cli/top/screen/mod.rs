//! `fingerpost top` on a terminal: tabs with sparklines, sorted and filtered by keys.
//!
//! ```text
//! a thread: requests -> Picture -- channel -> Screen (state.rs) -> cells (draw.rs) -> terminal
//!                                             keys --^
//! ```
//!
//! State and picture to cells is a pure function, which tests call without a terminal. The terminal is as it was before at the
//! end, also after an error, a panic or a signal.

mod draw;
mod state;
mod table;

use std::sync::mpsc::{self, TryRecvError};
use std::time::Duration;

use ratatui::crossterm::event::{self, Event, KeyEventKind};

use super::{Picture, pictures};
use crate::cli::at::At;
use crate::cli::command::{Exit, Failure};
use crate::sys;

use state::{Next, Screen};

/// Interval of looks at keys and pictures.
const LOOK: Duration = Duration::from_millis(50);

/// Shows pictures until the user quits, or the router does.
pub(super) fn run(at: At, interval: f64) -> Result<(), Failure> {
    // Before the terminal is touched: where no router replies there is nothing to show.
    let client = at.client()?;
    client.get::<crate::api::model::Status>("/v1/status", &())?;
    drop(client);
    let (sender, received) = mpsc::sync_channel(1);
    let requests = move || {
        let client = match at.client() {
            Ok(client) => client,
            Err(error) => return drop(sender.send(Err(error.into()))),
        };
        let each = &mut |picture: Picture| Ok(sender.send(Ok(picture)).is_ok());
        if let Err(failure) = pictures(&client, interval, u64::MAX, each) {
            // Whoever has quit does not need it.
            let _ = sender.send(Err(failure));
        }
    };
    std::thread::Builder::new().name("top".into()).spawn(requests).map_err(Failure::from)?;
    sys::catch_signals();
    let colors = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let shown = ratatui::try_init()
        .map_err(terminal_failure)
        .and_then(|mut terminal| show(&mut terminal, &received, Screen::new(colors)));
    shown.and(ratatui::try_restore().map_err(terminal_failure))
}

fn show(
    terminal: &mut ratatui::DefaultTerminal,
    received: &mpsc::Receiver<Result<Picture, Failure>>,
    mut screen: Screen,
) -> Result<(), Failure> {
    let mut changed = true;
    while !sys::stop_asked() {
        if std::mem::take(&mut changed) {
            terminal.draw(|frame| draw::draw(frame, &screen)).map_err(terminal_failure)?;
        }
        if event::poll(LOOK).map_err(terminal_failure)? {
            changed = true;
            if let Event::Key(key) = event::read().map_err(terminal_failure)?
                && key.kind != KeyEventKind::Release
                && screen.key(key) == Next::Quit
            {
                return Ok(());
            }
        }
        match received.try_recv() {
            Ok(picture) => {
                screen.push(picture?);
                changed = true;
            }
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => return Ok(()),
        }
    }
    Ok(())
}

fn terminal_failure(error: std::io::Error) -> Failure {
    Failure::new(Exit::Failed, format_args!("terminal: {error}; `--plain` needs none"))
}

#[cfg(test)]
mod tests;
