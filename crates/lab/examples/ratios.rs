//! Prints `src/ratios.tsv` anew: every layout that a plan considers, measured on the engine in virtual time.

use weft_lab::disks::Class;
use weft_lab::ratios::{layouts, row, simulate};

fn main() {
    for layout in layouts() {
        let ratios = simulate(layout, Class::Hdd7200).expect("these are hard disks");
        println!("{}", row(layout, ratios));
    }
}
