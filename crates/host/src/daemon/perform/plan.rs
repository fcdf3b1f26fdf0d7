//! The planner, for whoever asks over the socket.

use crate::api::error::{Answer, ApiError, Kind};
use crate::api::plan::PlanMade;
use crate::daemon::Daemon;
use crate::ops::Perform;
use crate::ops::plan::{self, PlanAsk};

impl Perform<PlanAsk> for Daemon {
    fn perform(&self, ask: &PlanAsk) -> Answer<PlanMade> {
        let made = plan::answer(&ask.question(self)?)?;
        let json = serde_json::to_value(made).and_then(serde_json::from_value);
        json.map_err(|error| ApiError::new(Kind::Internal, format!("the plan has no JSON: {error}")))
    }
}
