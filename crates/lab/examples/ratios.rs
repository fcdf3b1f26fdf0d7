//! Prints `src/ratios.tsv` anew: every layout that a plan considers, measured on the engine in virtual time.

use weft_lab::ratios::{CLASSES, layouts, row, simulate};

fn main() {
    for class in CLASSES {
        for layout in layouts() {
            let ratios = simulate(layout, class).expect("these are hard disks");
            println!("{}", row(layout, class, ratios));
        }
    }
}
