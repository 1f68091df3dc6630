//! `flowpeel-fleet serve`: the page of a router or a network, and the API below it.

use super::stop::Stop;
use super::{Outcome, report};
use crate::serve::{ServeConfig, Server};
use clap::Args;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// How often it is looked whether the command is to stop.
const STOP_INTERVAL: Duration = Duration::from_millis(100);

/// Show the open connections of a router, or of all routers of a network, on a page and by an API
///
/// Follows the lists that `flowpeel live --out` or `flowpeel-fleet collect` writes, and changes nothing. Only this
/// machine may ask: others come in by ssh -L or a reverse proxy.
#[derive(Args)]
#[command(
    display_name = "flowpeel-fleet serve",
    after_help = "Examples:\n  flowpeel-fleet serve --from lists\n  flowpeel-fleet serve --from /data/east --from /data/west --listen [::1]:9000"
)]
pub(super) struct Arguments {
    /// A directory with the lists of a router, or with a folder of lists for each; may be given several times
    #[arg(long, value_name = "DIR", required = true)]
    from: Vec<PathBuf>,

    /// Where to listen, on this machine
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:9180")]
    listen: SocketAddr,

    /// A name under which a reverse proxy asks, beside localhost; may be given several times
    #[arg(long, value_name = "NAME", hide_short_help = true)]
    host: Vec<String>,
}

/// Serves until a signal.
pub(super) async fn run(arguments: &Arguments) -> Outcome {
    let stop = Stop::on_signals()?;
    let config =
        ServeConfig { directories: arguments.from.clone(), listen: arguments.listen, hosts: arguments.host.clone() };
    let server = Server::new(config).await.map_err(super::Failure::wrong_usage)?;
    let (routers, connections) = server.figures();
    report::line(format_args!("{connections} connections of {routers} routers at http://{}/", server.local_addr()?));
    let stopped = async {
        while !stop.is_stopped() {
            tokio::time::sleep(STOP_INTERVAL).await;
        }
    };
    tokio::select! {
        () = server.run() => {}
        () = stopped => {}
    }
    Ok(true)
}
