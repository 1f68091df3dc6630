//! The TCP sockets of the host, as `ss` lists them.

use crate::error::{Error, Result};
use crate::kernel::conntrack::Stage;
use crate::kernel::netlink::NetlinkSocket;
use netlink_packet_core::NetlinkHeader;
use netlink_packet_sock_diag::inet::{ExtensionFlags, InetRequest, SocketId, StateFlags};
use netlink_packet_sock_diag::{SockDiagMessage, constants};
use netlink_sys::protocols::NETLINK_SOCK_DIAG;
use std::net::{IpAddr, SocketAddr};

/// A socket that is connected, or was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostSocket {
    /// The end of this host.
    pub local: SocketAddr,
    /// The other end.
    pub remote: SocketAddr,
    /// How far the connection has come.
    pub stage: Stage,
    /// Whether this side has sent its FIN and waits for the other's, for no more than a minute where no program does.
    pub is_waiting: bool,
}

/// Calls `each` with every TCP socket that is not listening.
///
/// # Errors
///
/// The kernel does not show its sockets.
pub fn sockets(mut each: impl FnMut(HostSocket)) -> Result<()> {
    let cannot = |error| Error::new("cannot read the sockets of the host").because(error);
    let mut socket = NetlinkSocket::open(NETLINK_SOCK_DIAG).map_err(cannot)?;
    for (family, id) in [(libc::AF_INET, SocketId::new_v4()), (libc::AF_INET6, SocketId::new_v6())] {
        let request = SockDiagMessage::InetRequest(InetRequest {
            family: family as u8,
            protocol: libc::IPPROTO_TCP as u8,
            extensions: ExtensionFlags::empty(),
            states: StateFlags::all() - StateFlags::LISTEN - StateFlags::CLOSE,
            socket_id: id,
        });
        let one = |_: &NetlinkHeader, answer| {
            if let SockDiagMessage::InetResponse(response) = answer {
                let (id, state) = (&response.header.socket_id, response.header.state);
                let end = |address: IpAddr, port| SocketAddr::new(address.to_canonical(), port);
                each(HostSocket {
                    local: end(id.source_address, id.source_port),
                    remote: end(id.destination_address, id.destination_port),
                    stage: stage_of(state),
                    is_waiting: matches!(state, constants::TCP_FIN_WAIT1 | constants::TCP_FIN_WAIT2),
                });
            }
        };
        socket.dump(request, one).map_err(cannot)?;
    }
    Ok(())
}

fn stage_of(state: u8) -> Stage {
    match state {
        constants::TCP_SYN_SENT | constants::TCP_SYN_RECV => Stage::HalfOpen,
        constants::TCP_ESTABLISHED
        | constants::TCP_FIN_WAIT1
        | constants::TCP_FIN_WAIT2
        | constants::TCP_CLOSE_WAIT => Stage::Open,
        _ => Stage::Ended,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_connection_of_this_process_is_there_from_both_ends() {
        let Ok(listener) = TcpListener::bind("127.0.0.1:0") else { return };
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (local, remote) = (client.local_addr().unwrap(), client.peer_addr().unwrap());
        let mut found = Vec::new();
        sockets(|socket| found.push(socket)).unwrap();
        for (local, remote) in [(local, remote), (remote, local)] {
            assert!(
                found.contains(&HostSocket { local, remote, stage: Stage::Open, is_waiting: false }),
                "{local} {remote}"
            );
        }
    }
}
