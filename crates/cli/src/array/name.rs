//! An array's name, and its host's before it.

use stripewise_format::superblock_1::name_of;

use super::hostname;
use crate::exit::Impossible;

/// Bytes of a version-1 name besides the zero that ends it.
const NAME_BYTES_MAX: usize = 31;

/// Refuses a name that superblocks do not hold whole.
pub(super) fn check_name(name: &str) -> Result<(), Impossible> {
    if name.len() > NAME_BYTES_MAX || name.is_empty() || name.chars().any(char::is_control) {
        let problem = format!("a name has 1 to {NAME_BYTES_MAX} bytes and no control characters");
        return Err(Impossible(format!("--name '{}': {problem}", name.escape_debug())));
    }
    Ok(())
}

/// The host before a name: this machine, unless `--homehost` says otherwise.
pub(super) fn homehost(said: Option<&str>) -> Result<Option<String>, Impossible> {
    let host = match said {
        None => hostname(),
        Some("<none>" | "") => None,
        Some(host) => Some(host.to_owned()),
    };
    if let Some(host) = host.as_deref().filter(|host| host.chars().any(char::is_control)) {
        let problem = "a host's name has no control characters";
        return Err(Impossible(format!("--homehost '{}': {problem}", host.escape_debug())));
    }
    Ok(host)
}

/// A name as superblocks have it.
pub(super) fn whole_name(said_host: Option<&str>, name: &str) -> Result<[u8; 32], Impossible> {
    check_name(name)?;
    Ok(name_of(homehost(said_host)?.as_deref(), name))
}
