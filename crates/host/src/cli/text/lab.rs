//! Claims and what was found about them.

use crate::ops::table::{Rows, Style, cell};
use crate::ops::text::Text;
use serde::Serialize;
use weft_lab::claims::{Finding, NOT_REPEATED, all};

/// The claims that can be repeated.
#[derive(Serialize)]
pub struct Claims(Vec<Listed>);

#[derive(Serialize)]
struct Listed {
    id: &'static str,
    about: &'static str,
    says: &'static str,
}

impl Claims {
    /// All of them.
    pub fn all() -> Claims {
        Claims(all().iter().map(|claim| Listed { id: claim.id, about: claim.about, says: claim.says }).collect())
    }
}

impl Text for Claims {
    fn text(&self, style: Style) -> String {
        let mut rows = Rows::new(style, &["ID", "ABOUT", "THE SOURCE SAYS"]);
        self.0.iter().for_each(|claim| rows.row(vec![cell(claim.id), cell(claim.about), cell(claim.says)]));
        let others: Vec<&str> = NOT_REPEATED.iter().map(|(id, _)| *id).collect();
        let of = format!("\n{} of 68 claims; not {}\n", self.0.len(), others.join(", "));
        rows.draw() + &of
    }
}

/// What was found.
#[derive(Serialize)]
pub struct Findings(pub Vec<Finding>);

impl Text for Findings {
    fn text(&self, _: Style) -> String {
        let one = |finding: &Finding| {
            let Finding { id, about, says, spaces, weft, verdict, note, .. } = finding;
            let verdict = verdict.to_string().replace("**", "");
            format!(
                "{id}  {about}\n    the source says  {says}\n    Storage Spaces   {spaces} (a model of it)\n\
                \x20   weft             {weft}\n    the model gives what the source says: {verdict}\n    {note}\n"
            )
        };
        self.0.iter().map(one).collect()
    }
}
