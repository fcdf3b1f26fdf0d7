//! Claims and what was found about them.

use crate::ops::table::{Rows, Style, cell};
use crate::ops::text::Text;
use serde::Serialize;
use weft_lab::claims::{CLAIMS, Finding};

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
        Claims(CLAIMS.iter().map(|claim| Listed { id: claim.id, about: claim.about, says: claim.says }).collect())
    }
}

impl Text for Claims {
    fn text(&self, style: Style) -> String {
        let mut rows = Rows::new(style, &["ID", "ABOUT", "THE SOURCE SAYS"]);
        self.0.iter().for_each(|claim| rows.row(vec![cell(claim.id), cell(claim.about), cell(claim.says)]));
        let of = format!(
            "\n{} of 68 claims; the others need a model of Storage Spaces, which is not there yet\n",
            self.0.len()
        );
        rows.draw() + &of
    }
}

/// What was found.
#[derive(Serialize)]
pub struct Findings(pub Vec<Finding>);

impl Text for Findings {
    fn text(&self, _: Style) -> String {
        let one = |finding: &Finding| {
            let Finding { id, about, says, spaces, weft, holds } = finding;
            let holds =
                if *holds { "the source is right by the rules" } else { "the source is NOT right by the rules" };
            format!(
                "{id}  {about}\n    the source says  {says}\n    by its rules     {spaces}\n    weft             {weft}\n    {holds}\n"
            )
        };
        self.0.iter().map(one).collect()
    }
}
