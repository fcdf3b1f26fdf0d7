//! `weft lab run --workload`: a workload on something real, or on models.

use super::{Ran, Session};
use crate::api::error::{Answer, ApiError, Kind};
use crate::cli::text::{Beside, Outcomes};
use crate::cli::usage;
use crate::load::{Direct, Nbd, Target, run};
use crate::ops::export::ExportList;
use std::path::Path;
use weft_lab::jobs::Job;
use weft_lab::{arrays, named};

impl Session<'_, '_> {
    pub(super) fn load(&mut self, target: &str, workload: &str, yes: bool) -> Ran {
        let jobs = jobs(workload)?;
        let writes = jobs.iter().any(Job::writes);
        if writes && !yes {
            let what = format!("the workload writes, and what is on {target} would be lost; only --yes does it");
            return Err(ApiError::new(Kind::InvalidInput, what).hint(usage::again(self.argv, "--yes")).into());
        }
        let mut target: Box<dyn Target> = match target.starts_with("nbd") && !Path::new(target).exists() {
            true => {
                let wrong = |why: String| ApiError::new(Kind::InvalidInput, why).offer(&ExportList {});
                Box::new(Nbd::connect(&target.parse().map_err(wrong)?)?)
            }
            false => Box::new(Direct::open(Path::new(target), writes)?),
        };
        let outcomes = jobs.iter().map(|job| run(&mut *target, job)).collect::<Answer<Vec<_>>>()?;
        self.print(&Outcomes(outcomes))
    }

    pub(super) fn load_models(&mut self, workload: &str) -> Ran {
        let jobs = jobs(workload)?;
        let rates = arrays::run(&jobs).map_err(|why| ApiError::new(Kind::NotPossible, why).hint("weft lab list"))?;
        self.print(&Beside(rates))
    }
}

/// The jobs of a name, a line, or a file.
fn jobs(workload: &str) -> Answer<Vec<Job>> {
    let (name, text) = match Job::is_told_by(workload) {
        true => (String::new(), workload.to_string()),
        false => {
            let text = std::fs::read_to_string(workload).map_err(|error| {
                let names = named::names();
                let what = format!(
                    "`{workload}` is none of {names}, no line of diskspd or SQLIO, and no job file that can be read: \
                     {error}"
                );
                ApiError::new(Kind::NotFound, what).hint("weft lab list")
            })?;
            (format!("{workload}: "), text)
        }
    };
    Job::read(&text).map_err(|why| {
        let hint = "weft lab run --on TARGET --workload \"diskspd -b4K -r -o32\"";
        ApiError::new(Kind::InvalidInput, format!("{name}{why}")).hint(hint)
    })
}
