//! Prints the table of `docs/guide/planning.md`.

fn main() {
    print!("{}", weft_lab::questions::table());
}
