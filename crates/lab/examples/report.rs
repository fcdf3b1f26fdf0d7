//! Writes `lab.md`, its pictures, `disks.md` and `raid.md` anew into a directory (`make lab`); what is found on
//! the way goes to stderr. Given numbers of claims instead, it prints their rows only.

use weft_lab::claims::{Lab, claim, row};

fn main() {
    let ids: Vec<String> = std::env::args().skip(1).collect();
    let dir = match &ids[..] {
        [dir] if claim(dir).is_none() => std::path::PathBuf::from(dir),
        ids => {
            let lab = Lab::default();
            ids.iter().for_each(|id| print!("{}", row(&claim(id).expect("there is such a claim").run(&lab))));
            return;
        }
    };
    let mut clock = std::time::Instant::now();
    let report = weft_lab::claims::report(|finding| {
        let took = clock.elapsed().as_secs_f64();
        clock = std::time::Instant::now();
        eprintln!("{took:5.1} s  {}: {} | {} | {}", finding.id, finding.spaces, finding.weft, finding.verdict);
    });
    std::fs::create_dir_all(dir.join("lab")).expect("the directory can be made");
    std::fs::write(dir.join("disks.md"), weft_lab::specifications::document()).expect("the document can be written");
    std::fs::write(dir.join("raid.md"), weft_lab::beside_md::document()).expect("the document can be written");
    std::fs::write(dir.join("lab.md"), report.text).expect("the document can be written");
    for (name, svg) in report.plots {
        std::fs::write(dir.join(name), svg).expect("a picture can be written");
    }
}
