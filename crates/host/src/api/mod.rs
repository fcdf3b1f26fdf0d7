//! What operations speak of and answer with. An answer is one value: what `--json` prints, what the text is drawn from,
//! what goes over the socket. The operations themselves are in `ops`.

/// Has a type go over the socket as the text that it is typed as.
macro_rules! as_text {
    ($type:ty) => {
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<$type, D::Error> {
                <String as serde::Deserialize>::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

pub mod cache;
pub mod class;
pub mod daily;
pub mod error;
pub mod export;
pub mod job;
pub mod mount;
pub mod name;
pub mod plan;
pub mod pool;
pub mod power;
pub mod read_cache;
pub mod share;
pub mod size;
pub mod span;
pub mod tier;
pub mod validate;
pub mod vdisk;
pub mod watch;

/// The version of this API, the first part of every path but the document's own.
pub const API_VERSION: &str = "v1";
