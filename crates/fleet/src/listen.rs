//! Where the servers of figures listen: on this machine alone.

use flowpeel::error::{Error, Result};
use flowpeel::metrics::http::is_exposed;
use std::net::SocketAddr;

/// Checks that other machines cannot reach a server at this address.
///
/// # Errors
///
/// They can.
pub fn check(address: SocketAddr) -> Result<()> {
    if is_exposed(address) {
        let what = "only this machine may ask: listen at 127.0.0.1 or [::1], and let others in by ssh -L or a reverse \
                    proxy that has TLS and asks who they are";
        return Err(Error::new(format!("{address}: {what}")));
    }
    Ok(())
}
