//! The checked-in code is what the .proto file generates. `PORCH_BLESS=1 cargo test -p porch-wire` writes it anew.

use std::{env, fs, path::Path};

#[test]
fn generated_code_is_fresh() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let files = protox::compile(["shared_data.proto"], [root.join("proto")])
        .expect("shared_data.proto compiles");
    let out = tempfile::tempdir().expect("a temporary folder");
    tonic_prost_build::configure()
        .bytes(".")
        .client_mod_attribute(".", "#[cfg(feature = \"client\")]")
        .server_mod_attribute(".", "#[cfg(feature = \"server\")]")
        .out_dir(out.path())
        .compile_fds(files)
        .expect("code is generated");
    let fresh = fs::read_to_string(out.path().join("porch.v1.rs")).expect("the generated file");
    let path = root.join("src/generated/porch.v1.rs");
    if env::var_os("PORCH_BLESS").is_some() {
        fs::write(&path, &fresh).expect("the checked-in file is written");
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == fresh,
        "src/generated/porch.v1.rs is stale: run `PORCH_BLESS=1 cargo test -p porch-wire` and commit it"
    );
}
