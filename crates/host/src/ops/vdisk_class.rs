//! What a virtual disk that is to be made is written for.

use super::vdisk::VdiskCreate;
use crate::api::cache::WriteCache;
use crate::api::class::Class;
use crate::api::error::Answer;
use crate::api::size::Size;
use weft_engine::pool;

impl VdiskCreate {
    /// What is asked for, where it agrees with all else.
    pub fn class_asked(&self) -> Answer<pool::Class> {
        let unit = match self.unit {
            None => None,
            Some(Size::Bytes(bytes)) => Some(bytes),
            Some(size) => return Err(self.wrong(&format!("{size} is no unit"), self.plain())),
        };
        let instead = |class| VdiskCreate { class: Some(class), ..self.plain() };
        match self.class.unwrap_or_default() {
            Class::Auto | Class::Stream if self.unit.is_some() => {
                let message = "--unit is for class log, whose stripes are one unit each";
                Err(self.wrong(message, VdiskCreate { unit: self.unit, ..instead(Class::Log) }))
            }
            Class::Auto => Ok(pool::Class::Auto),
            Class::Stream if self.write_cache.is_some_and(|cache| cache != WriteCache::Off) => {
                let message = "class stream has small writes merged, so it has no write-back cache; class auto may";
                Err(self.wrong(message, VdiskCreate { write_cache: self.write_cache, ..instead(Class::Auto) }))
            }
            Class::Stream => Ok(pool::Class::Stream),
            Class::Log if self.interleave.is_some() => {
                let message = "class log takes --unit, which the columns divide, in place of --interleave";
                Err(self.wrong(message, instead(Class::Log)))
            }
            Class::Log => Ok(pool::Class::Log { unit }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_engine::units::ByteCount;

    #[test]
    fn what_contradicts_a_class_is_refused_with_a_line_that_is_none() {
        let plain = VdiskCreate::new("tank/db".parse().unwrap(), Size::Bytes(ByteCount::gib(1)));
        let kib = |n| Some(Size::Bytes(ByteCount::kib(n)));
        let log = |unit| VdiskCreate { class: Some(Class::Log), unit, ..plain.clone() };
        assert_eq!(log(kib(8)).class_asked().unwrap(), pool::Class::Log { unit: Some(ByteCount::kib(8)) });
        assert_eq!(plain.class_asked().unwrap(), pool::Class::Auto);
        let tiers = ["ssd,size=1GiB", "hdd,interleave=64KiB"].map(|tier| tier.parse().unwrap()).to_vec();
        let contradictions = [
            VdiskCreate { unit: kib(16), ..plain.clone() },
            VdiskCreate { unit: kib(16), class: Some(Class::Stream), ..plain.clone() },
            VdiskCreate { write_cache: Some(WriteCache::Auto), class: Some(Class::Stream), ..plain.clone() },
            VdiskCreate { interleave: kib(16), ..log(kib(16)) },
            VdiskCreate { tier: tiers, ..log(kib(16)) },
        ];
        for create in contradictions {
            let error = create.validate().unwrap_err();
            assert!(error.hint.as_ref().is_some_and(|hint| hint.contains("--class")), "{create:?}: {error}");
        }
    }
}
