//! `flowpeel-fleet serve`: the page of a router or a network, and the API below it.

use super::stop::Stop;
use super::{Outcome, report};
use crate::serve::{PeerConfig, ServeConfig, Server, TlsFiles};
use clap::Args;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// How often it is looked whether the command is to stop.
const STOP_INTERVAL: Duration = Duration::from_millis(100);

/// Show the open connections of a router, or of all routers of a network, on a page and by an API
///
/// Follows the lists that `flowpeel live --out` or `flowpeel-fleet collect` writes, and changes nothing. Only this
/// machine may ask, unless there are TLS and a token: others come in by ssh -L or a reverse proxy.
#[derive(Args)]
#[command(
    display_name = "flowpeel-fleet serve",
    after_help = "Examples:\n  flowpeel-fleet serve --from lists\n  flowpeel-fleet serve --from /data/east --from /data/west --listen [::1]:9000\n  \
    flowpeel-fleet serve --from lists --listen 0.0.0.0:9180 --tls-certificate page.pem --tls-key page.key --token-file token"
)]
pub(super) struct Arguments {
    /// A directory with the lists of a router, or with a folder of lists for each; may be given several times
    #[arg(long, value_name = "DIR", required = true)]
    from: Vec<PathBuf>,

    /// An archive of a router, for the past of connections and addresses; may be given several times
    ///
    /// flowpeel live --archive writes it. It is shown under the name of its folder.
    #[arg(long, value_name = "DIR")]
    archive: Vec<PathBuf>,

    /// Where to listen; an address that other machines reach wants TLS and a token
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:9180")]
    listen: SocketAddr,

    /// A name under which a reverse proxy asks, beside localhost; may be given several times
    #[arg(long, value_name = "NAME", hide_short_help = true)]
    host: Vec<String>,

    /// A certificate in PEM form, with those that lead to its authority: then it serves over TLS
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_certificate: Option<PathBuf>,

    /// The key of the certificate, which nobody but the owner may read
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    tls_key: Option<PathBuf>,

    /// A file with the token that opens, which nobody but the owner may read: openssl rand -hex 32
    ///
    /// Programs send it as Authorization: Bearer; the page asks for it once.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,

    /// A serve beside a collector with another share, whose lists are taken over; may be given several times
    ///
    /// A share that is missing makes the view incomplete. http:// is for this machine alone, https:// wants --peer-ca.
    #[arg(long, value_name = "URL", hide_short_help = true)]
    peer: Vec<String>,

    /// The certificates of the authority that signed those of peers
    #[arg(long, value_name = "FILE", requires = "peer", hide_short_help = true)]
    peer_ca: Option<PathBuf>,

    /// A file with the token of peers, which nobody but the owner may read
    #[arg(long, value_name = "FILE", requires = "peer", hide_short_help = true)]
    peer_token_file: Option<PathBuf>,
}

impl Arguments {
    fn tls(&self) -> Option<TlsFiles> {
        let (certificate, key) = (self.tls_certificate.clone()?, self.tls_key.clone()?);
        Some(TlsFiles { certificate, key })
    }
}

/// Serves until a signal.
pub(super) async fn run(arguments: &Arguments) -> Outcome {
    let stop = Stop::on_signals()?;
    let config = ServeConfig {
        directories: arguments.from.clone(),
        archives: arguments.archive.clone(),
        listen: arguments.listen,
        hosts: arguments.host.clone(),
        tls: arguments.tls(),
        token_file: arguments.token_file.clone(),
        peers: PeerConfig {
            urls: arguments.peer.clone(),
            ca: arguments.peer_ca.clone(),
            token_file: arguments.peer_token_file.clone(),
        },
    };
    let server = Server::new(config).await.map_err(super::Failure::wrong_usage)?;
    let (routers, connections) = server.figures();
    report::line(format_args!("{connections} connections of {routers} routers at {}", server.url()?));
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
