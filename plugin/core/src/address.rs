//! Who the client is: one canonical form for each address, however it was written.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// A client address in canonical form, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientAddress {
    /// An address, IPv6 reduced to its network.
    Ip(IpAddr),
    /// The connection has no address (a unix socket) or none that can be read.
    None,
}

impl ClientAddress {
    /// Reads what the proxy trusts as the client: an address with or without a port, a zone or brackets. An IPv4
    /// address mapped into IPv6 is the IPv4 address; IPv6 is cut to its first `ipv6_prefix` bits (0 to 128).
    pub fn read(text: &[u8], ipv6_prefix: u8) -> Self {
        let Some(ip) = std::str::from_utf8(text).ok().and_then(parse) else {
            return Self::None;
        };
        match ip.to_canonical() {
            IpAddr::V4(ip) => Self::Ip(IpAddr::V4(ip)),
            IpAddr::V6(ip) => {
                let keep = u32::from(ipv6_prefix.min(128));
                let mask = u128::MAX
                    .checked_shl(128_u32.saturating_sub(keep))
                    .unwrap_or(0);
                Self::Ip(IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() & mask)))
            }
        }
    }
}

fn parse(text: &str) -> Option<IpAddr> {
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Some(address.ip());
    }
    let text = text
        .strip_prefix('[')
        .map_or(text, |rest| rest.split(']').next().unwrap_or(rest));
    let text = text.split('%').next().unwrap_or(text);
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> ClientAddress {
        ClientAddress::Ip(text.parse().expect("an address"))
    }

    #[test]
    fn one_address_has_one_form() {
        for written in [
            "1.2.3.4",
            "1.2.3.4:80",
            "::ffff:1.2.3.4",
            "[::ffff:102:304]:9",
            "::ffff:102:304",
        ] {
            assert_eq!(
                ClientAddress::read(written.as_bytes(), 64),
                ip("1.2.3.4"),
                "{written}"
            );
        }
    }

    #[test]
    fn ipv6_is_its_network() {
        for written in [
            "[2001:db8::1]:80",
            "2001:db8::ffff%eth0",
            "[2001:db8::3%2]:1",
            "2001:db8::1.2.3.4",
        ] {
            assert_eq!(
                ClientAddress::read(written.as_bytes(), 64),
                ip("2001:db8::"),
                "{written}"
            );
        }
        assert_eq!(ClientAddress::read(b"2001:db8::1", 128), ip("2001:db8::1"));
        assert_eq!(ClientAddress::read(b"2001:db8::1", 0), ip("::"));
    }

    #[test]
    fn what_is_no_address_is_none() {
        for written in [&b""[..], b"@/run/socket", b"\xff\xfe", b"1.2.3", b"["] {
            assert_eq!(ClientAddress::read(written, 64), ClientAddress::None);
        }
    }
}
