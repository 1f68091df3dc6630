//! Who may ask: who has the token.
//!
//! A program shows it with every request (`Authorization: Bearer`). A browser shows it once, for a cookie that no
//! script can read and that is sent to this server alone: a stream of events cannot carry a header, and a token that
//! the page kept could be read by a script that was injected into it.

use axum::http::header::{AUTHORIZATION, COOKIE};
use axum::http::{HeaderMap, HeaderValue};
use flowpeel::disk::read_private_text;
use flowpeel::error::{Error, Result};
use sha2::{Digest, Sha256};
use std::path::Path;
use subtle::{Choice, ConstantTimeEq};

/// The shortest token, in characters: what is not guessed in any number of requests. The longest fits in a request.
const TOKEN_SIZES: std::ops::RangeInclusive<usize> = 32..=1_024;

/// The cookie. A browser takes one of this prefix only over TLS, and gives it to nobody but this host.
const COOKIE_NAME: &str = "__Host-flowpeel";

/// The digests of what is to be shown. Neither the token nor what the cookie has can be read from them.
pub(super) struct Access {
    token: [u8; 32],
    session: [u8; 32],
    cookie: String,
}

impl Access {
    /// Reads the token in a file that nobody but the owner may read.
    ///
    /// # Errors
    ///
    /// The file cannot be read, others may read it, or it has no token of a good length.
    pub(super) fn read(path: &Path) -> Result<Self> {
        let text = read_private_text(path)?;
        let token = text.trim_end_matches(['\r', '\n']);
        if !TOKEN_SIZES.contains(&token.len()) || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            let what = "a token is a line of 32 to 1,024 letters, digits and signs: openssl rand -hex 32 makes one";
            return Err(Error::new(what).in_file(path));
        }
        Ok(Access::new(token))
    }

    fn new(token: &str) -> Self {
        // It follows from the token, so whoever has a new one has nothing of the sessions before, and who has not goes
        // on when the server was started again.
        let session: String =
            digest(&["flowpeel page session ", token]).iter().map(|byte| format!("{byte:02x}")).collect();
        Access { token: digest(&[token]), session: digest(&[&session]), cookie: session }
    }

    /// Whether a request shows the token, or the cookie that was given for it. Takes as long for any that is wrong.
    pub(super) fn permits(&self, headers: &HeaderMap) -> bool {
        let sessions = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
        let sessions = sessions.flat_map(|cookies| cookies.split(';')).filter_map(|cookie| cookie.split_once('='));
        let sessions = sessions.filter(|(name, _)| name.trim() == COOKIE_NAME).map(|(_, value)| value.trim());
        let is_session = sessions.fold(Choice::from(0), |is, session| is | digest(&[session]).ct_eq(&self.session));
        self.shows_token(headers) || is_session.into()
    }

    /// Whether a request shows the token itself.
    pub(super) fn shows_token(&self, headers: &HeaderMap) -> bool {
        let shown = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()).and_then(|value| {
            let (scheme, token) = value.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
        });
        shown.is_some_and(|token| digest(&[token]).ct_eq(&self.token).into())
    }

    /// The cookie for who has shown the token, until the browser is closed.
    pub(super) fn cookie(&self) -> Option<HeaderValue> {
        cookie(&self.cookie, "")
    }
}

/// What takes the cookie back.
pub(super) fn no_cookie() -> Option<HeaderValue> {
    cookie("", "; Max-Age=0")
}

fn cookie(value: &str, more: &str) -> Option<HeaderValue> {
    let text = format!("{COOKIE_NAME}={value}; Path=/; Secure; HttpOnly; SameSite=Strict{more}");
    let mut header = HeaderValue::from_str(&text).ok()?;
    header.set_sensitive(true);
    Some(header)
}

fn digest(parts: &[&str]) -> [u8; 32] {
    parts.iter().fold(Sha256::new(), |digest, part| digest.chain_update(part)).finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "0123456789abcdef0123456789abcdef";

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_str(value).unwrap())).collect()
    }

    #[test]
    fn the_token_and_its_cookie_open_and_nothing_else() {
        let access = Access::new(TOKEN);
        let cookie = access.cookie().unwrap().to_str().unwrap().split(';').next().unwrap().to_owned();
        assert!(!cookie.contains(TOKEN) && access.cookie().unwrap().is_sensitive());
        for permitted in [
            ("authorization", format!("Bearer {TOKEN}")),
            ("authorization", format!("bearer  {TOKEN}")),
            ("cookie", cookie.clone()),
            ("cookie", format!("a=b; {cookie}; c")),
            ("cookie", format!("{COOKIE_NAME}=; {cookie}")),
        ] {
            assert!(access.permits(&headers(&[(permitted.0, &permitted.1)])), "{permitted:?}");
        }
        let session = cookie.split_once('=').unwrap().1;
        for refused in [
            ("authorization", TOKEN.to_owned()),
            ("authorization", format!("Basic {TOKEN}")),
            ("authorization", format!("Bearer {TOKEN}0")),
            ("authorization", format!("Bearer {}", &TOKEN[1..])),
            ("authorization", "Bearer ".to_owned()),
            ("authorization", format!("Bearer {session}")),
            ("cookie", format!("{COOKIE_NAME}={TOKEN}")),
            ("cookie", format!("flowpeel={session}")),
            ("cookie", format!("{COOKIE_NAME}=")),
            ("x", TOKEN.to_owned()),
        ] {
            assert!(!access.permits(&headers(&[(refused.0, &refused.1)])), "{refused:?}");
        }
        assert!(!access.shows_token(&headers(&[("cookie", &cookie)])));
        assert!(!Access::new("another token that is long enough").permits(&headers(&[("cookie", &cookie)])));
    }

    #[test]
    fn a_token_is_private_and_long() {
        use std::os::unix::fs::PermissionsExt;
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("token");
        let read = |text: &str, mode| {
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
            Access::read(&path).map(drop).map_err(|error| error.to_string())
        };
        assert_eq!(read(&format!("{TOKEN}\n"), 0o600), Ok(()));
        assert!(read(&format!("{TOKEN}\n"), 0o640).unwrap_err().contains("chmod 600"));
        for wrong in ["", "short", &format!("{TOKEN} {TOKEN}"), &format!("{TOKEN}\n{TOKEN}"), &"a".repeat(1_025)] {
            let error = read(wrong, 0o600).unwrap_err();
            assert!(error.contains("openssl rand") && !error.contains(TOKEN), "{error}");
        }
    }
}
