//! Claims and what was found about them, and workloads on models.

use crate::ops::table::{Rows, Style, cell};
use crate::ops::text::Text;
use serde::Serialize;
use weft_lab::arrays::Rates;
use weft_lab::claims::{Claim, Finding, NOT_REPEATED, all};
use weft_lab::named::{NAMED, Named};

/// The claims that can be repeated.
#[derive(Serialize)]
pub struct Claims {
    claims: Vec<Listed>,
    workloads: Vec<Workload>,
}

#[derive(Serialize)]
struct Workload {
    name: &'static str,
    about: &'static str,
}

#[derive(Serialize)]
struct Listed {
    id: &'static str,
    about: &'static str,
    says: &'static str,
}

impl Claims {
    /// All of them, and the workloads that have names.
    pub fn all() -> Claims {
        let claim = |claim: &Claim| Listed { id: claim.id, about: claim.about, says: claim.says };
        let workload = |named: &Named| Workload { name: named.name, about: named.about };
        Claims { claims: all().into_iter().map(claim).collect(), workloads: NAMED.iter().map(workload).collect() }
    }
}

impl Text for Claims {
    fn text(&self, style: Style) -> String {
        let mut rows = Rows::new(style, &["ID", "ABOUT", "THE SOURCE SAYS"]);
        self.claims.iter().for_each(|claim| rows.row(vec![cell(claim.id), cell(claim.about), cell(claim.says)]));
        let others: Vec<&str> = NOT_REPEATED.iter().map(|(id, _)| *id).collect();
        let of = format!("\n{} of 68 claims; not {}\n\n", self.claims.len(), others.join(", "));
        let mut named = Rows::new(style, &["WORKLOAD", "ABOUT"]);
        self.workloads.iter().for_each(|one| named.row(vec![cell(one.name), cell(one.about)]));
        rows.draw() + &of + &named.draw()
    }
}

/// What arrays do of a workload.
#[derive(Serialize)]
pub struct Beside(pub Vec<Rates>);

impl Text for Beside {
    fn text(&self, style: Style) -> String {
        let mut rows = Rows::new(style, &["ARRAY", "WORKLOAD", "NEW", "USED", "REQUESTS"]);
        for Rates { array, job, new_mb_s, used_mb_s, used_per_second } in &self.0 {
            let mb = |rate: f64| if rate < 9.95 { format!("{rate:.1} MB/s") } else { format!("{rate:.0} MB/s") };
            let new = new_mb_s.map_or("-".into(), mb);
            let often = format!("{used_per_second:.0}/s");
            rows.row(vec![cell(array), cell(job), cell(new), cell(mb(*used_mb_s)), cell(often)]);
        }
        rows.draw()
            + "\nModels on disks of 150 MB/s in virtual time. new: nothing was written before (not of what reads);\n\
               used: everything was written once, and so are the requests per second.\n"
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
