//! Machines by their addresses: who may be a client.

use crate::api::error::BadValue;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// One machine, `ADDR`, or all whose addresses begin with the same `LEN` bits, `ADDR/LEN`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Network {
    /// The first address.
    addr: IpAddr,
    /// Bits that are as in it: 1 to 32, or 128.
    len: u8,
}

impl Network {
    /// Whether `addr` is one of its addresses. An IPv4 address is the same however the system writes it.
    pub fn has(&self, addr: IpAddr) -> bool {
        first(addr.to_canonical(), self.len) == Some(self.addr)
    }
}

/// The address with all but its first `len` bits cleared; `None` where it has not so many.
fn first(addr: IpAddr, len: u8) -> Option<IpAddr> {
    Some(match addr {
        IpAddr::V4(addr) => {
            let rest = 32u32.checked_sub(len.into())?;
            Ipv4Addr::from_bits(addr.to_bits() & u32::MAX.checked_shl(rest).unwrap_or(0)).into()
        }
        IpAddr::V6(addr) => {
            let rest = 128u32.checked_sub(len.into())?;
            Ipv6Addr::from_bits(addr.to_bits() & u128::MAX.checked_shl(rest).unwrap_or(0)).into()
        }
    })
}

impl FromStr for Network {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Network, BadValue> {
        let forms = "ADDR and ADDR/LEN name clients, such as 192.168.1.7, 192.168.1.0/24 and fd00::/64";
        let (addr, len) = text.split_once('/').map_or((text, None), |(addr, len)| (addr, Some(len)));
        let Ok(addr) = addr.parse::<IpAddr>() else {
            return Err(BadValue::new(format!("`{text}` names no clients; {forms}"), "192.168.1.0/24"));
        };
        let addr = addr.to_canonical();
        let most = if addr.is_ipv4() { 32 } else { 128 };
        let len = len.map_or(Ok(most), str::parse);
        let Some(len) = len.ok().filter(|len| (1..=most).contains(len)) else {
            let message =
                format!("`{text}` has no length from 1 to {most}; {forms}, and --allow-any is for all machines");
            return Err(BadValue::new(message, addr.to_string()));
        };
        let network = Network { addr: first(addr, len).unwrap_or(addr), len };
        if network.addr != addr {
            return Err(BadValue::new(
                format!("`{text}` is one of many addresses; {network} names them all"),
                network.to_string(),
            ));
        }
        Ok(network)
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = if self.addr.is_ipv4() { 32 } else { 128 };
        write!(f, "{}", self.addr)?;
        if self.len < whole { write!(f, "/{}", self.len) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn has(network: &str, addr: &str) -> bool {
        network.parse::<Network>().unwrap().has(addr.parse().unwrap())
    }

    #[test]
    fn networks_read_back_as_they_are_written() {
        for text in ["10.0.0.7", "10.0.0.0/8", "192.168.1.128/25", "0.0.0.0/1", "fd00::/64", "::1"] {
            assert_eq!(text.parse::<Network>().unwrap().to_string(), text);
        }
        assert_eq!("10.0.0.7/32".parse::<Network>().unwrap().to_string(), "10.0.0.7");
    }

    #[test]
    fn a_network_has_the_addresses_that_begin_as_it_does_and_no_others() {
        assert!(has("10.0.0.0/8", "10.255.0.1") && !has("10.0.0.0/8", "11.0.0.1"));
        assert!(has("10.0.0.7", "10.0.0.7") && !has("10.0.0.7", "10.0.0.6"));
        assert!(has("192.168.1.128/25", "192.168.1.128") && !has("192.168.1.128/25", "192.168.1.127"));
        assert!(has("fd00::/64", "fd00::1:2:3:4") && !has("fd00::/64", "fd00:0:0:1::"));
        assert!(!has("fd00::/8", "10.0.0.1") && !has("0.0.0.0/1", "::1"));
        assert!(has("10.0.0.0/8", "::ffff:10.0.0.1"), "as a socket of both families writes it");
    }

    #[test]
    fn what_names_no_clients_is_refused_with_what_would_do() {
        for text in
            ["", "host", "10.0.0.0/33", "10.0.0.0/0", "::/0", "10.0.0.7/24", "10.0.0.0/", "fd00::1/64", "10.0.0.0/x"]
        {
            let nearest = text.parse::<Network>().expect_err(text).nearest.unwrap();
            assert!(nearest.parse::<Network>().is_ok(), "{text}: {nearest}");
        }
        assert_eq!("10.0.0.7/24".parse::<Network>().unwrap_err().nearest.as_deref(), Some("10.0.0.0/24"));
    }
}
