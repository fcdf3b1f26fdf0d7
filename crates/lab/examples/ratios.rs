//! Prints `src/ratios.tsv` anew: every layout that a plan considers, measured on the engine in virtual time; with the
//! word `random`, `src/random.tsv`.

use weft_lab::ratios::{CLASSES, layouts, random_row, row, simulate, simulate_random};

fn main() {
    // The classes that are named, or all of them.
    let named: Vec<String> = std::env::args().skip(1).collect();
    if named == ["random"] {
        for layout in layouts() {
            if let Some(random) = simulate_random(layout, CLASSES[0]) {
                println!("{}", random_row(layout, random));
            }
        }
        return;
    }
    for class in CLASSES.into_iter().filter(|class| named.is_empty() || named.contains(&class.to_string())) {
        for layout in layouts() {
            let ratios = simulate(layout, class).expect("these are simulated");
            println!("{}", row(layout, class, ratios));
        }
    }
}
