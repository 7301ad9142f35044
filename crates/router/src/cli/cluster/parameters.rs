//! `fingerpost cluster set`: parameters that all nodes of a cluster have from its store.

use std::collections::BTreeMap;

use clap::Args;
use hyper::Method;

use super::super::command::{Exit, Failure};
use super::super::output::Output;
use crate::api::cluster::{ClusterStatus, ParameterChange};
use crate::cli::at::At;

pub(super) const EXAMPLES: &str = "Examples:
  $ fingerpost cluster set rule=adaptive flowlet_ms=5
  $ fingerpost cluster set mode=direct
  $ fingerpost cluster set rate=10Gbps weight.b=2
  $ fingerpost cluster set state.b=draining

mode=direct|vlb, rule=vlb|fixed|adaptive, flowlet_ms=N and rate=RATE are those of [cluster], for all nodes and links. \
weight.NODE=N is the share of transit of a node, state.NODE=draining|active whether it carries any. With `configured`, rate and \
weight are those of the configurations again. Parameters that are not named stay. Each change has a version; a mode \
is active when all members have reported the version, the others at once. `cluster status` has who lags behind. \
It needs a cluster with a store.";

#[derive(Args)]
pub(super) struct Arguments {
    /// Parameters and their new values
    #[arg(value_name = "KEY=VALUE", required = true)]
    parameters: Vec<String>,
    #[command(flatten)]
    at: At,
}

/// Changes parameters, and prints the state of the cluster.
pub(super) fn run(arguments: &Arguments, output: &mut Output) -> Result<(), Failure> {
    let mut set = BTreeMap::new();
    for word in &arguments.parameters {
        let usage = |words: String| Failure::new(Exit::Usage, words);
        let (key, value) =
            word.split_once('=').ok_or_else(|| usage(format!("`{word}`: KEY=VALUE is needed")))?;
        if set.insert(key.to_owned(), value.to_owned()).is_some() {
            return Err(usage(format!("`{key}` is given twice")));
        }
    }
    let (path, change) = ("/v1/cluster/parameters", ParameterChange { set });
    let status: ClusterStatus = arguments.at.client()?.send(Method::POST, path, &change)?;
    Ok(output.print(&status)?)
}
