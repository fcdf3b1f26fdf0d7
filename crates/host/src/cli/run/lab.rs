//! `weft lab`: repeats published claims; needs neither a daemon nor root.

use super::{Failure, Ran, Session};
use crate::api::error::{ApiError, Kind};
use crate::cli::args::{Lab, Which};
use crate::cli::exit::Exit;
use crate::cli::text::{Claims, Findings};
use std::path::Path;
use weft_lab::claims::{self, Claim, all, claim, report};

impl Session<'_, '_> {
    pub(super) fn lab(&mut self, lab: &Lab) -> Ran {
        match lab {
            Lab::List => self.print(&Claims::all()),
            Lab::Run(Which { on: Some(target), workload: Some(workload), yes, .. }) => {
                self.load(target, workload, *yes)
            }
            Lab::Run(Which { workload: Some(workload), .. }) => self.load_models(workload),
            Lab::Run(which) => {
                let chosen: Vec<&Claim> = match which.all {
                    true => all(),
                    false => which.claims.iter().map(|id| find(id)).collect::<Result<_, _>>()?,
                };
                let lab = claims::Lab::default();
                self.print(&Findings(chosen.into_iter().map(|claim| claim.run(&lab)).collect()))
            }
            Lab::Report { plots } => {
                let report = report(|_| ());
                if let Some(dir) = plots {
                    keep(dir, &report.plots)?;
                }
                write!(self.io.out, "{}", report.text)?;
                Ok(Exit::Done)
            }
        }
    }
}

/// Writes pictures into a directory, under the last words of their names.
fn keep(dir: &Path, plots: &[(String, String)]) -> Result<(), ApiError> {
    let one = |(name, svg): &(String, String)| {
        let file = Path::new(name).file_name().unwrap_or_default();
        std::fs::write(dir.join(file), svg)
    };
    std::fs::create_dir_all(dir).and_then(|()| plots.iter().try_for_each(one)).map_err(|error| {
        let message = format!("pictures cannot be written into {}: {error}", dir.display());
        ApiError::new(Kind::NotPossible, message).hint("weft lab report --plots lab")
    })
}

fn find(id: &str) -> Result<&'static Claim, Failure> {
    claim(id).ok_or_else(|| {
        let known: Vec<&str> = all().iter().map(|claim| claim.id).collect();
        let message = format!("claim {id} cannot be repeated; there are {}", known.join(", "));
        ApiError::new(Kind::NotFound, message).hint("weft lab list").into()
    })
}
