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

#[test]
fn the_document_about_model_disks_is_what_the_program_writes() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/evidence/disks.md");
    let document = weft_lab::specifications::document();
    assert!(
        std::fs::read_to_string(path).unwrap() == document,
        "run `make lab`: docs/evidence/disks.md should be\n{document}"
    );
}

#[test]
fn the_document_about_models_of_raid_is_what_the_program_writes() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/evidence/raid.md");
    let document = weft_lab::beside_md::document();
    assert!(
        std::fs::read_to_string(path).unwrap() == document,
        "run `make lab`: docs/evidence/raid.md should be\n{document}"
    );
}

#[test]
fn every_picture_that_the_document_shows_is_there_and_says_what_it_is_about() {
    let document = document();
    let shown: Vec<&str> = document.lines().filter_map(|line| line.strip_prefix("![")).collect();
    for id in ["Q5", "Q10", "Q14", "Q15", "Q16", "Q26", "Q29", "Q38"] {
        assert!(shown.contains(&format!("{id}](lab/{id}.svg)").as_str()), "run `make lab`: no picture of {id}");
    }
    for line in shown {
        let (id, name) = line.trim_end_matches(')').split_once("](").unwrap();
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/evidence/").to_string() + name;
        let svg = std::fs::read_to_string(path).expect(name);
        assert!(svg.contains(&format!("{id}: ")) && svg.contains("</svg>"), "{id}");
    }
}
