//! How a virtual disk is offered, beside where: who may write, who may connect.

use super::is_unset;
use super::network::Network;
use crate::api::error::BadValue;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use utoipa::ToSchema;

/// How a virtual disk is offered. In requests and in the state file its fields stand one by one, for these refuse what
/// they do not know.
#[derive(Serialize, Deserialize, ToSchema, Clone, PartialEq, Eq, Default, Debug)]
pub struct Terms {
    /// Clients can only read.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub read_only: bool,
    /// Another use may write, too: clients agree among themselves, as those of cluster file systems do.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub shared: bool,
    /// Any machine that reaches the address may connect.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub allow_any: bool,
    /// The machines that may connect, over TCP, each `ADDR` or `ADDR/LEN`; unless any are named, all that reach the
    /// address.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub allow: Vec<Network>,
    /// The mode of a unix socket, in octal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub mode: Option<SocketMode>,
    /// Whose a unix socket is, `USER[:GROUP]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub owner: Option<SocketOwner>,
}

/// The mode of a unix socket: who may connect. Its owner always may.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SocketMode(pub u32);

/// Whose a unix socket is: `USER`, `USER:GROUP` or `:GROUP`, by name or number.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SocketOwner {
    /// The user; its owner as it is unless said.
    pub user: Option<String>,
    /// The group; its group as it is unless said.
    pub group: Option<String>,
}

impl SocketMode {
    /// What a socket gets that nothing else is asked for.
    pub const PRIVATE: SocketMode = SocketMode(0o600);
}

impl FromStr for SocketMode {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<SocketMode, BadValue> {
        match u32::from_str_radix(text, 8) {
            Ok(mode) if mode <= 0o777 && mode & 0o600 == 0o600 => Ok(SocketMode(mode)),
            _ => Err(BadValue::new(format!("`{text}` is no mode of a socket; 600 to 777 are, in octal"), "660")),
        }
    }
}

impl fmt::Display for SocketMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:o}", self.0)
    }
}

impl FromStr for SocketOwner {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<SocketOwner, BadValue> {
        let (user, group) = text.split_once(':').unwrap_or((text, ""));
        let named = |name: &str| (!name.is_empty()).then(|| name.to_string());
        let owner = SocketOwner { user: named(user), group: named(group) };
        let odd = |name: &Option<String>| {
            name.as_ref().is_some_and(|name| name.contains([':', '\n', '\0']) || name.contains(char::is_whitespace))
        };
        if (owner.user.is_none() && owner.group.is_none()) || odd(&owner.user) || odd(&owner.group) {
            let message = format!("`{text}` names no owner; USER, USER:GROUP and :GROUP do, by name or number");
            return Err(BadValue::new(message, "root:disk"));
        }
        Ok(owner)
    }
}

impl fmt::Display for SocketOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.user.as_deref().unwrap_or(""))?;
        self.group.as_ref().map_or(Ok(()), |group| write!(f, ":{group}"))
    }
}

as_text!(SocketMode);
as_text!(SocketOwner);
as_text!(Network);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_and_owners_read_back_as_they_are_written() {
        for text in ["600", "660", "777"] {
            assert_eq!(text.parse::<SocketMode>().unwrap().to_string(), text);
        }
        for text in ["root", "root:disk", ":disk", "1000:1000"] {
            assert_eq!(text.parse::<SocketOwner>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_would_lock_the_owner_out_or_names_nobody_is_refused_with_what_would_do() {
        for text in ["", "0", "060", "999", "1777", "rw", "-1"] {
            assert!(text.parse::<SocketMode>().expect_err(text).nearest.unwrap().parse::<SocketMode>().is_ok());
        }
        for text in ["", ":", "a b", "a:b:c", "a\n"] {
            assert!(text.parse::<SocketOwner>().expect_err(text).nearest.unwrap().parse::<SocketOwner>().is_ok());
        }
    }
}
