//! The document about the claims beside the program that writes it.

use weft_lab::claims::{Finding, Lab, NOT_REPEATED, Verdict, all, claim, row};

fn document() -> String {
    std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/evidence/lab.md")).unwrap()
}

/// What is decided in no time, and one experiment on weft and the model.
const QUICK: [&str; 19] = [
    "Q2", "Q4", "Q6", "Q7", "Q8", "Q9", "Q20", "Q21", "Q22", "Q42", "Q43", "Q44", "Q45", "Q50", "Q54", "Q56", "Q58",
    "Q59", "Q67",
];

#[test]
fn rows_of_the_document_are_what_the_lab_finds() {
    let (document, lab) = (document(), Lab::default());
    for id in QUICK {
        let row = row(&claim(id).unwrap().run(&lab));
        assert!(document.contains(&row), "run `make lab`: docs/evidence/lab.md does not have\n{row}");
    }
}

#[test]
fn the_same_claim_gives_the_same_row() {
    let find = || -> Finding { claim("Q6").unwrap().run(&Lab::default()) };
    assert_eq!(row(&find()), row(&find()));
}

#[test]
fn the_document_has_a_row_for_every_claim_or_a_reason() {
    let document = document();
    for claim in all() {
        let head = format!("| {} | {} | {} | ", claim.id, claim.about, claim.says);
        assert!(document.contains(&head), "run `make lab`: docs/evidence/lab.md has no row\n{head}");
    }
    for (id, why) in NOT_REPEATED {
        assert!(document.contains(&format!("| {id} | {why} |")));
    }
}

#[test]
fn claims_that_arithmetic_decides_are_exact() {
    let lab = Lab::default();
    for id in ["Q2", "Q4", "Q7", "Q8", "Q9", "Q20", "Q22", "Q42", "Q43", "Q44", "Q45", "Q50"] {
        assert_eq!(claim(id).unwrap().run(&lab).verdict, Verdict::Exact(true), "{id}");
    }
}
