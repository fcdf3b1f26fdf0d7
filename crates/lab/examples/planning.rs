//! Prints the table of `docs/planning.md`.

fn main() {
    print!("{}", weft_lab::questions::table());
}
