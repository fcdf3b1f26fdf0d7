//! Prints `src/ratios.tsv` anew: every layout that a plan considers, measured on the engine in virtual time.

use weft_lab::ratios::{CLASSES, layouts, row, simulate};

fn main() {
    // The classes that are named, or all of them.
    let named: Vec<String> = std::env::args().skip(1).collect();
    for class in CLASSES.into_iter().filter(|class| named.is_empty() || named.contains(&class.to_string())) {
        for layout in layouts() {
            let ratios = simulate(layout, class).expect("these are simulated");
            println!("{}", row(layout, class, ratios));
        }
    }
}
