//! `POOL/VDISK`: the name of a virtual disk, and of its exports.

use super::error::BadValue;
use super::validate;
use std::fmt;
use std::str::FromStr;

/// The name of a virtual disk within its pool, written `POOL/VDISK`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct VdiskName {
    /// The pool's name.
    pub pool: String,
    /// The virtual disk's name within the pool.
    pub vdisk: String,
}

impl FromStr for VdiskName {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<VdiskName, BadValue> {
        let Some((pool, vdisk)) = text.split_once('/') else {
            return Err(BadValue::new(
                format!("`{text}` names no virtual disk; POOL/VDISK does"),
                format!("{}/media", validate::nearest_name(text)),
            ));
        };
        validate::name(pool).and_then(|()| validate::name(vdisk)).map_err(|bad| {
            BadValue::new(bad.message, format!("{}/{}", validate::nearest_name(pool), validate::nearest_name(vdisk)))
        })?;
        Ok(VdiskName { pool: pool.into(), vdisk: vdisk.into() })
    }
}

impl fmt::Display for VdiskName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.pool, self.vdisk)
    }
}

as_text!(VdiskName);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_without_a_pool_is_refused_with_one_that_would_do() {
        let bad = "tank".parse::<VdiskName>().unwrap_err();
        assert_eq!(bad.nearest.as_deref(), Some("tank/media"));
        let bad = "tank/a/b".parse::<VdiskName>().unwrap_err();
        assert_eq!(bad.nearest.as_deref(), Some("tank/a-b"));
        assert_eq!("tank/media".parse::<VdiskName>().unwrap().to_string(), "tank/media");
    }
}
