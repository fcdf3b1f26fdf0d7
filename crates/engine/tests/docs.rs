//! Every test that is said to show an invariant is there. `scripts/tidy` sees to the files that documents name.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// What stands between backquotes outside of code blocks.
fn quoted(text: &str) -> BTreeSet<String> {
    let prose: String = text.split("```").step_by(2).collect();
    prose.split('`').skip(1).step_by(2).map(str::to_string).collect()
}

fn sources(dir: &Path, into: &mut String) {
    for entry in std::fs::read_dir(dir).expect("a directory of the tree") {
        let path = entry.expect("an entry of the tree").path();
        if path.is_dir() && !path.ends_with("target") {
            sources(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.push_str(&read(&path));
        }
    }
}

#[test]
fn every_test_that_the_invariants_name_exists() {
    let mut code = String::new();
    sources(&root().join("crates"), &mut code);
    let quoted = quoted(&read(&root().join("docs/invariants.md")));
    // Constants of the kernel have capitals.
    let is_test =
        |word: &&String| word.matches('_').count() >= 3 && !word.contains(|c: char| c == '/' || c.is_uppercase());
    let named: Vec<_> = quoted.iter().filter(is_test).collect();
    assert!(named.len() > 10, "the table of invariants names its tests: {named:?}");
    for test in named {
        assert!(code.contains(&format!("fn {test}(")), "there is no test {test}");
    }
}
