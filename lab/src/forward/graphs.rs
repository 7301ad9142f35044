//! Graphs of a text: those of users of Click, and the built-in router with further elements.

use anyhow::{Result, anyhow, ensure};
use fingerpost_packet::language::{Errors, Language};
use fingerpost_packet::{ELEMENTS, Handlers, Plan, router_graph};

/// The graph of a text, by this name in errors, and its handlers.
pub(super) fn read(name: &str, text: &str) -> Result<(Plan, Handlers)> {
    let told = |errors: Errors| anyhow!("{errors}");
    let configuration = Language::new(ELEMENTS).read(name, text).map_err(told)?;
    let plan = Plan::of(&configuration, ELEMENTS).map_err(told)?;
    let handlers = plan.handlers(configuration);
    Ok((plan, handlers))
}

/// The built-in router with `elements`, each followed by an arrow, between the check of a packet of a family and its lookup.
pub(super) fn built_in_with(name: &str, family: u8, elements: &str) -> Result<(Plan, Handlers)> {
    let entry = format!("ip{family}_input [forward] -> ");
    let text = router_graph::TEXT.replacen(&entry, &format!("{entry}{elements}"), 1);
    ensure!(text != router_graph::TEXT, "the built-in router's graph has another form");
    read(name, &text)
}
