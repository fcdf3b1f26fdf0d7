//! `weft disk measure`: reads a disk, fits a class to what was found, and keeps it for `weft plan`. The daemon is asked
//! only where a disk that it knows is called by another name than its path.

use super::{Ran, Session};
use crate::api::error::{Answer, ApiError, Kind};
use crate::cli::text::Measurement;
use crate::cli::usage;
use crate::daemon::config::default_state;
use crate::measure::classes::{self, Classes};
use crate::measure::{Found, How, measure};
use crate::ops::disk::DiskList;
use crate::ops::disk::DiskShow;
use crate::ops::measure::DiskMeasure;
use crate::ops::{Perform, absolute};
use crate::wire::client::Client;
use std::path::{Path, PathBuf};
use weft_lab::measured::Measured;

impl Session<'_, '_> {
    pub(super) fn measure(&mut self, told: &DiskMeasure) -> Ran {
        let path = self.path_of(&told.disk)?;
        let name = match &told.name {
            Some(name) => name.clone(),
            None => name_of(&path, &told.disk)?,
        };
        let classes = self.classes()?;
        let found = measure(&path, How { span: told.time, in_use: told.in_use });
        let Found { figures, doubts } = found.map_err(|error| match error.kind {
            Kind::AlreadyExists => error.hint(usage::again(self.argv, "--in-use")),
            _ => error,
        })?;
        let wrong = |why: String| ApiError::new(Kind::NotPossible, why).offer(&DiskList::default());
        let fitted = Measured::fit(&name, figures.clone()).map_err(wrong)?;
        let kept = classes.keep(&name, &figures)?;
        let (like, model_together) = (fitted.like(), fitted.together());
        self.print(&Measurement { name, path, figures, like, model_together, doubts, kept })
    }

    /// The classes that were measured by this user.
    pub(super) fn classes(&self) -> Answer<Classes> {
        Ok(Classes::of(&default_state(self.surroundings)?))
    }

    /// A path as it is typed, where there is something; else what the daemon says.
    fn path_of(&self, disk: &str) -> Answer<PathBuf> {
        let typed = Path::new(disk);
        if typed.exists() || disk.starts_with(['/', '.']) {
            return absolute(typed);
        }
        let known = Client::new(self.socket()?).perform(&DiskShow::of(disk)).map_err(|error| {
            let what = format!("there is no file or device `{disk}`, and {}", error.message);
            ApiError::new(error.kind, what).offer(&DiskList::default())
        })?;
        known
            .path
            .ok_or_else(|| ApiError::new(Kind::NotFound, format!("{disk} is not there")).offer(&DiskList::default()))
    }
}

/// The name of a file or a device, where a class can be called that.
fn name_of(path: &Path, disk: &str) -> Answer<String> {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    classes::name(name).map_err(|bad| {
        let nearest = bad.nearest.unwrap_or_else(|| "my-disk".into());
        ApiError::new(Kind::InvalidInput, bad.message).hint(format!("weft disk measure {disk} --name {nearest}"))
    })
}
