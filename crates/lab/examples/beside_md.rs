//! Prints the table of `docs/evidence/raid.md`.

fn main() {
    print!("{}", weft_lab::beside_md::table());
}
