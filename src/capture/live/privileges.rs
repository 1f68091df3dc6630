//! Privileges: naming the one that is missing, and giving up all of them.
//!
//! A process that has given them up can do no more than the user whom it became, now and later. Where the privilege to
//! capture is missing, the error names the command that grants it.

use std::fmt::Write;
use std::io;

use nix::unistd::{Gid, Uid, User, geteuid, getgroups, getresuid, setgroups, setresgid, setresuid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set, remove_capability_from_bounding_set,
    set_capabilities, set_keep_capabilities, set_no_new_privs,
};

use crate::error::{Error, Result};

/// The error for a missing privilege to capture, with the command that grants it.
pub(super) fn missing(what: &str) -> Error {
    let program =
        std::env::current_exe().map_or_else(|_| "flowpeel".to_owned(), |path| path.to_string_lossy().into_owned());
    let quoted = shell_quoted(&program);
    Error::new(format!("{what} without privilege: run it as root, or once: sudo setcap cap_net_raw+ep {quoted}"))
}

/// A word as a shell reads it back, without control characters.
fn shell_quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=:@%,".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    if !word.chars().any(char::is_control) {
        return format!("'{}'", word.replace('\'', r"'\''"));
    }
    let mut quoted = String::from("$'");
    for c in word.chars() {
        match c {
            '\'' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => {
                // Control characters are below 256; writing to a string cannot fail.
                let _ = write!(quoted, "\\u{:04x}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted + "'"
}

/// As [`drop_privileges`], but for the capability to read the system's table of connections (CAP_NET_ADMIN), where this
/// process has it. A thread that is started then keeps it when the others give it up, by [`drop_privileges`] without a
/// user.
///
/// # Errors
///
/// As [`drop_privileges`].
pub fn drop_privileges_but_net_admin(user: Option<&str>) -> Result<()> {
    let may = capabilities(None).map_err(|errno| Error::new("cannot read privileges").because(errno))?.permitted;
    let kept = may & CapabilitySet::NET_ADMIN;
    set_keep_capabilities(true).map_err(|errno| Error::new("cannot keep a privilege").because(errno))?;
    give_up(user, kept)
}

/// Becomes this user, if one is named, and gives up every capability and the ability to gain one.
///
/// Sockets that are open stay open, and a source that they belong to can continue after its interface has come back
/// (see [`Live`](super::Live)). Capabilities belong to threads: call this before there are any others, or they keep
/// theirs. A process that is not root but has file capabilities cannot become another user; it gives up its
/// capabilities.
///
/// # Errors
///
/// There is no such user, or this process may not become that user: nothing has changed then. Or the system refuses a
/// step: the process must not continue then, since it may have given up only a part.
pub fn drop_privileges(user: Option<&str>) -> Result<()> {
    give_up(user, CapabilitySet::empty())
}

/// Becomes this user, if one is named, and gives up every capability but these.
fn give_up(user: Option<&str>, kept: CapabilitySet) -> Result<()> {
    let user = user.map(find_user).transpose()?;
    if let Some(user) = user.as_ref().filter(|user| !geteuid().is_root() && user.uid != geteuid()) {
        let shown = user.name.escape_debug();
        return Err(Error::new(format!("only root can become user {shown}: run it as root, or leave out the user")));
    }
    let cannot = |error: io::Error| Error::new("cannot give up privileges").because(error);
    set_no_new_privs(true).map_err(|errno| cannot(errno.into()))?;
    clear_ambient_capability_set().map_err(|errno| cannot(errno.into()))?;
    empty_bounding_set().map_err(cannot)?;
    // A process that is not root is that user already.
    if let Some(user) = user.as_ref().filter(|_| geteuid().is_root()) {
        become_user(user)?;
    }
    let sets = CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() };
    set_capabilities(None, sets).map_err(|errno| cannot(errno.into()))?;
    match capabilities(None) {
        Ok(left) if left == sets => Ok(()),
        Ok(_) => Err(Error::new("cannot give up privileges: the system keeps some")),
        Err(errno) => Err(cannot(errno.into())),
    }
}

/// The user of this name, or of this number if no user has that name.
fn find_user(user: &str) -> Result<User> {
    let shown = user.escape_debug();
    let cannot = |errno: nix::Error| Error::new(format!("cannot look up user {shown}")).because(errno);
    let by_name = User::from_name(user).map_err(cannot)?;
    let by_number = || user.parse().ok().map(|number| User::from_uid(Uid::from_raw(number))).transpose();
    let found = match by_name {
        Some(user) => Some(user),
        None => by_number().map_err(cannot)?.flatten(),
    };
    found.ok_or_else(|| Error::new(format!("there is no user {shown}")))
}

/// Takes on the user's number and group, and no other groups, for the whole process.
fn become_user(user: &User) -> Result<()> {
    let shown = user.name.escape_debug();
    let cannot = |errno: nix::Error| Error::new(format!("cannot become user {shown}")).because(errno);
    // The groups first: only root can set them.
    setgroups(&[user.gid]).map_err(cannot)?;
    setresgid(user.gid, user.gid, user.gid).map_err(cannot)?;
    setresuid(user.uid, user.uid, user.uid).map_err(cannot)?;
    let ids = getresuid().map_err(cannot)?;
    let groups = getgroups().map_err(cannot)?;
    let is_user = [ids.real, ids.effective, ids.saved].iter().all(|id| *id == user.uid);
    let is_alone = groups.iter().all(|group: &Gid| *group == user.gid);
    if is_user && is_alone { Ok(()) } else { Err(Error::new(format!("cannot become user {shown} altogether"))) }
}

/// Empties the bounding set of capabilities, if this process may. A process that may not is bound by having
/// waived new privileges.
fn empty_bounding_set() -> io::Result<()> {
    if !capabilities(None)?.effective.contains(CapabilitySet::SETPCAP) {
        return Ok(());
    }
    for bit in 0..u64::BITS {
        let capability = CapabilitySet::from_bits_retain(1 << bit);
        match remove_capability_from_bounding_set(capability) {
            Ok(()) => {}
            // Above the last capability that this kernel knows.
            Err(rustix::io::Errno::INVAL) => break,
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_quoted_as_a_shell_needs_it() {
        assert_eq!(shell_quoted("/usr/bin/flowpeel"), "/usr/bin/flowpeel");
        assert_eq!(shell_quoted("/opt/my tools/it's"), r"'/opt/my tools/it'\''s'");
        assert_eq!(shell_quoted("/tmp/$(reboot)"), "'/tmp/$(reboot)'");
        assert_eq!(shell_quoted("/tmp/a\x1b[2J'b"), r"$'/tmp/a\u001b[2J\'b'");
        assert_eq!(shell_quoted(""), "''");
    }

    #[test]
    fn what_is_missing_is_said_with_the_command() {
        let error = missing("cannot capture eth0").to_string();
        assert!(error.contains("sudo setcap cap_net_raw+ep ") && error.starts_with("cannot capture eth0"), "{error}");
    }

    #[test]
    fn users_are_found_by_name_and_number() {
        assert_eq!(find_user("root").unwrap().uid, Uid::from_raw(0));
        assert_eq!(find_user("0").unwrap().name, "root");
        let error = find_user("no\x1bsuch user").err().unwrap();
        assert_eq!(error.to_string(), "there is no user no\\u{1b}such user");
    }
}
