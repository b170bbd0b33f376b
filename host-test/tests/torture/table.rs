//! Does docs/operations.md say what is proven here?

use std::path::Path;

use clap::ValueEnum as _;
use porch_host::torture::Fault;

#[test]
fn operations_md_has_each_fault_as_it_is_proven() -> anyhow::Result<()> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(here.join("../docs/operations.md"))?;
    let section = page
        .split("\n## ")
        .find(|section| section.starts_with("When the disk fails\n"));
    let section = section.expect("docs/operations.md has a section `When the disk fails`");
    let rows: Vec<&str> = section
        .lines()
        .filter(|line| line.starts_with("| "))
        .collect();
    let mut expected = vec!["| fault | what the store does | what you do |".to_owned()];
    expected.extend(Fault::value_variants().iter().map(|fault| {
        let row = fault.row();
        format!("| {} | {} | {} |", row.fault, row.store, row.operator)
    }));
    assert_eq!(rows, expected);
    Ok(())
}
