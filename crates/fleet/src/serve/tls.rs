//! TLS for those who ask from elsewhere.

use flowpeel::error::{Error, Result};
use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{self, ServerConfig};

/// The server's side of TLS 1.2 and 1.3 under the certificate in a file, with those that lead to its authority behind
/// it, and the key of the certificate in a file that nobody but the owner may read.
///
/// # Errors
///
/// A file cannot be read, others may read the key, or certificate and key are none or do not belong together.
pub(super) fn acceptor(certificate: &Path, key: &Path) -> Result<TlsAcceptor> {
    let text = flowpeel::disk::read_private_text(key)?;
    // What is wrong with a key is not printed: it may have parts of it.
    let private = PrivateKeyDer::from_pem_slice(text.as_bytes());
    let private = private.map_err(|_| Error::new("there is no private key in PEM form here").in_file(key))?;
    let cannot =
        |error: pem::Error| Error::new("there is no certificate in PEM form here").in_file(certificate).because(error);
    let file = File::open(certificate);
    let file = file.map_err(|error| Error::new("cannot read the certificate").in_file(certificate).because(error))?;
    let chain: Vec<CertificateDer> =
        CertificateDer::pem_reader_iter(file).collect::<std::result::Result<_, _>>().map_err(cannot)?;
    if chain.is_empty() {
        return Err(Error::new("there is no certificate in PEM form here").in_file(certificate));
    }
    let cannot =
        |error: rustls::Error| Error::new("cannot serve under this certificate").in_file(certificate).because(error);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().map_err(cannot)?;
    let mut config = config.with_no_client_auth().with_single_cert(chain, private).map_err(cannot)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}
