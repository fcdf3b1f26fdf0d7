//! `weft lab`: repeats published claims; needs neither a daemon nor root.

use super::{Failure, Ran, Session};
use crate::api::error::{ApiError, Kind};
use crate::cli::args::Lab;
use crate::cli::exit::Exit;
use crate::cli::text::{Claims, Findings};
use weft_lab::claims::{CLAIMS, Claim, claim, table};

impl Session<'_, '_> {
    pub(super) fn lab(&mut self, lab: &Lab) -> Ran {
        match lab {
            Lab::List => self.print(&Claims::all()),
            Lab::Run(which) => {
                let chosen: Vec<&Claim> = match which.all {
                    true => CLAIMS.iter().collect(),
                    false => which.claims.iter().map(|id| find(id)).collect::<Result<_, _>>()?,
                };
                self.print(&Findings(chosen.into_iter().map(Claim::run).collect()))
            }
            Lab::Report => {
                write!(self.io.out, "{}", table())?;
                Ok(Exit::Done)
            }
        }
    }
}

fn find(id: &str) -> Result<&'static Claim, Failure> {
    claim(id).ok_or_else(|| {
        let known: Vec<&str> = CLAIMS.iter().map(|claim| claim.id).collect();
        let message = format!("claim {id} cannot be repeated; there are {}", known.join(", "));
        ApiError::new(Kind::NotFound, message).hint("weft lab list").into()
    })
}
