//! `weft lab`: repeats published claims; needs neither a daemon nor root.

use super::{Failure, Ran, Session};
use crate::api::error::{ApiError, Kind};
use crate::cli::args::Lab;
use crate::cli::exit::Exit;
use crate::cli::text::{Claims, Findings};
use weft_lab::claims::{self, Claim, all, claim, report};

impl Session<'_, '_> {
    pub(super) fn lab(&mut self, lab: &Lab) -> Ran {
        match lab {
            Lab::List => self.print(&Claims::all()),
            Lab::Run(which) => {
                let chosen: Vec<&Claim> = match which.all {
                    true => all(),
                    false => which.claims.iter().map(|id| find(id)).collect::<Result<_, _>>()?,
                };
                let lab = claims::Lab::default();
                self.print(&Findings(chosen.into_iter().map(|claim| claim.run(&lab)).collect()))
            }
            Lab::Report => {
                write!(self.io.out, "{}", report(|_| ()))?;
                Ok(Exit::Done)
            }
        }
    }
}

fn find(id: &str) -> Result<&'static Claim, Failure> {
    claim(id).ok_or_else(|| {
        let known: Vec<&str> = all().iter().map(|claim| claim.id).collect();
        let message = format!("claim {id} cannot be repeated; there are {}", known.join(", "));
        ApiError::new(Kind::NotFound, message).hint("weft lab list").into()
    })
}
