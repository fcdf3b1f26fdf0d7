//! What the planner answers.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// What `weft plan --json` prints.
#[derive(Serialize, Deserialize, ToSchema, Clone, PartialEq, Debug)]
pub struct PlanMade {
    /// `best` and `layouts` with their figures and reasons, `advice`, `notes`, and what was asked.
    #[serde(flatten)]
    #[schema(value_type = BTreeMap<String, Object>)]
    pub plan: BTreeMap<String, Value>,
}
