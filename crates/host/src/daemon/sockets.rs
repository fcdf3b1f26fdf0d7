//! Whose the unix sockets of exports are, and who may connect to them.

use crate::api::error::{Answer, ApiError, Kind};
use crate::api::export::{SocketMode, SocketOwner, Terms};
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;

/// The number of the user and of the group that an owner names; none where none is named.
pub type Numbers = (Option<u32>, Option<u32>);

/// Gives the socket at `path` to whom the terms name; nobody but its owner may connect unless they say so.
pub fn give_socket(path: &Path, terms: &Terms) -> Answer<()> {
    let failed = |what: &str, error: std::io::Error| {
        ApiError::new(Kind::NotPossible, format!("cannot {what} {}: {error}", path.display()))
    };
    let mode = terms.mode.unwrap_or(SocketMode::PRIVATE);
    // The mode first: until it has its owner nobody else gets in.
    fs::set_permissions(path, fs::Permissions::from_mode(mode.0)).map_err(|error| failed("set the mode of", error))?;
    let Some(owner) = &terms.owner else { return Ok(()) };
    let (user, group) = numbers(owner)?;
    chown(path, user, group).map_err(|error| failed(&format!("give {owner} the socket"), error))
}

/// Looks an owner up in the machine's own files.
pub fn numbers(owner: &SocketOwner) -> Answer<Numbers> {
    let look = |name: &Option<String>, file: &str, what: &str| match name {
        None => Ok(None),
        Some(name) => number(name, &fs::read_to_string(file).unwrap_or_default()).map(Some).ok_or_else(|| {
            let message = format!("--owner: there is no {what} {name} in {file}; a number names one of elsewhere");
            ApiError::new(Kind::InvalidInput, message)
        }),
    };
    Ok((look(&owner.user, "/etc/passwd", "user")?, look(&owner.group, "/etc/group", "group")?))
}

/// The number that a name has in a file with lines of `name:x:number:`, or is.
fn number(name: &str, file: &str) -> Option<u32> {
    let found = file.lines().map(|line| line.split(':').collect::<Vec<_>>()).find(|words| words[0] == name);
    match found {
        Some(words) => words.get(2)?.parse().ok(),
        None => name.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_looked_up_and_numbers_are_themselves() {
        let file = "root:x:0:0:root:/root:/bin/sh\nweft:x:998:997::/:/bin/false\nbroken\n";
        assert_eq!(["root", "weft", "1234"].map(|name| number(name, file)), [Some(0), Some(998), Some(1234)]);
        assert_eq!(["nobody", "broken", "-1"].map(|name| number(name, file)), [None; 3]);
    }
}
