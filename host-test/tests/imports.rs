//! Who may import whom: a dependency that the design does not have fails here.

use std::collections::BTreeSet;

use cargo_metadata::{Dependency, MetadataCommand, Package};

/// Project crates, and the project crates that each may name in its Cargo.toml. Core and wire know no other; the
/// guests are known to nobody.
const MAY_IMPORT: &[(&str, &[&str])] = &[
    ("porch-core", &[]),
    ("porch-wire", &[]),
    ("porch-filter", &["porch-core", "porch-wire"]),
    ("porch-engine", &["porch-core"]),
    ("porch-store", &["porch-engine", "porch-wire"]),
    (
        "porch-host",
        &["porch-core", "porch-engine", "porch-store", "porch-wire"],
    ),
];

/// What binds a crate to one side of the system, and the crates that stand on that side.
const BOUND: &[(&str, &[&str])] = &[
    ("proxy-wasm", &["porch-filter"]),
    ("heed", &["porch-engine"]),
    ("tonic", &["porch-wire", "porch-store", "porch-host"]),
    ("tokio", &["porch-store", "porch-host", "porch-wire"]),
];

fn packages() -> anyhow::Result<Vec<Package>> {
    let metadata = MetadataCommand::new()
        .no_deps()
        .other_options(["--offline".to_owned()])
        .exec()?;
    Ok(metadata.packages)
}

#[test]
fn every_project_crate_has_its_rule() -> anyhow::Result<()> {
    let found: BTreeSet<String> = packages()?
        .iter()
        .map(|package| package.name.to_string())
        .collect();
    let ruled: BTreeSet<String> = MAY_IMPORT
        .iter()
        .map(|(name, _)| (*name).to_owned())
        .collect();
    assert_eq!(
        found, ruled,
        "a crate without a rule, or a rule without a crate"
    );
    Ok(())
}

#[test]
fn no_crate_imports_what_it_may_not() -> anyhow::Result<()> {
    let mut wrong = Vec::new();
    for package in packages()? {
        let may = MAY_IMPORT
            .iter()
            .find(|(name, _)| *name == package.name.as_str())
            .map_or(&[][..], |(_, may)| may);
        for dependency in &package.dependencies {
            let name = dependency.name.as_str();
            let ours = MAY_IMPORT.iter().any(|(crate_name, _)| *crate_name == name);
            let bound = BOUND.iter().find(|(crate_name, _)| *crate_name == name);
            let elsewhere = bound.is_some_and(|(_, users)| !users.contains(&package.name.as_str()));
            if (ours && !may.contains(&name)) || elsewhere {
                wrong.push(format!("{} may not import {name}", package.name));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
    Ok(())
}

#[test]
fn the_filter_takes_of_the_wire_only_its_messages() -> anyhow::Result<()> {
    let packages = packages()?;
    let filter = packages
        .iter()
        .find(|package| package.name.as_str() == "porch-filter");
    let wire: Vec<&Dependency> = filter
        .into_iter()
        .flat_map(|package| &package.dependencies)
        .filter(|dependency| dependency.name == "porch-wire")
        .collect();
    assert_eq!(wire.len(), 1, "the filter speaks the channel's messages");
    assert!(
        wire[0].features.is_empty(),
        "no gRPC stubs in the guest: {:?}",
        wire[0].features
    );
    Ok(())
}
